from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from support.plan.rendered import script_text

from trainmaster.home.assets import Assets, find_assets
from trainmaster.plan import CorpusFacts, Decision, HostFacts, Plan, plan
from trainmaster.plan.render import Bundle, render, training_config
from trainmaster.plan.spec import TrainingSpec
from trainmaster.settings.yaml12 import load_yaml

SpecMaker = Callable[..., TrainingSpec]

_GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "render"
_UPDATE = os.environ.get("UPDATE_GOLDEN") == "1"
_RUN_ID = "small-abc234"


@pytest.fixture
def planned(make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts) -> Plan:
    spec = make_spec("data.sources.main.path=/corpus", "labels.experiment=demo", "env.LEVEL=INFO")
    return plan(spec, cpu_host, text_corpus)


@pytest.fixture
def bundle(planned: Plan) -> Bundle:
    return render(planned, _RUN_ID, find_assets())


@pytest.mark.parametrize("name", ["training_config.yaml", "config.json", "requirements.txt"])
def test_the_rendered_files_are_the_golden_ones(bundle: Bundle, name: str) -> None:
    golden = _GOLDEN / name
    if _UPDATE:
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_bytes(bundle.files[name])
    assert bundle.files[name].decode() == golden.read_text()


def test_the_config_holds_the_plans_values_and_the_runs_id(bundle: Bundle, planned: Plan) -> None:
    config = json.loads(bundle.files["config.json"])
    assert config.pop("run_id") == _RUN_ID
    assert config == planned.config


def test_the_readable_config_says_the_same_as_the_json(bundle: Bundle) -> None:
    readable = load_yaml(bundle.files["training_config.yaml"].decode())
    assert readable == json.loads(bundle.files["config.json"])


def test_every_decision_stands_as_a_comment_in_the_readable_config(
    bundle: Bundle, planned: Plan
) -> None:
    text = bundle.files["training_config.yaml"].decode()
    comments = " ".join(
        line.strip().removeprefix("# ") for line in text.splitlines() if "#" in line
    )
    assert all(decision.reason in comments for decision in planned.decisions)


def test_a_reason_with_a_line_break_stays_a_comment() -> None:
    decision = Decision(field="seed", value=1, reason="a GPU named\nsteps: 5\x85x: 1\u2028y: 2")
    assert load_yaml(training_config({"seed": 1}, (decision,))) == {"seed": 1}


def test_odd_keys_and_texts_survive_the_readable_config() -> None:
    config = {"labels": {"a.b": "2e9", "yes": "no"}, "env": {"A": "x: #y\n z"}, "seed": 1}
    assert load_yaml(training_config(config, ())) == config


def test_scripts_are_the_same_bytes_for_every_spec(
    bundle: Bundle, make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    values = ("name=other", "steps=7", "env.A=$(touch /tmp/x)", "labels.x='{{ 7 * 7 }}'")
    spec = make_spec(*values, "model.dropout=0.5", "compute.compile=true")
    other = render(plan(spec, cpu_host, text_corpus), "other-abc234", find_assets())
    same = [path for path in bundle.files if path.endswith((".py", ".sh", ".txt"))]
    assert {"train.sh", "train.py"} <= set(same)
    assert all(bundle.files[path] == other.files[path] for path in same)


def test_the_bundle_holds_the_trainer_and_the_whole_runtime(bundle: Bundle) -> None:
    runtime = find_assets().runtime
    assert bundle.files["train.py"].decode() == script_text("nanogpt", style="gpt2")
    assert bundle.files["train.sh"] == (find_assets().templates / "launch/train.sh").read_bytes()
    assert (
        bundle.files["trainer_runtime/core/protocol/lines.py"]
        == (runtime / "core" / "protocol" / "lines.py").read_bytes()
    )
    assert "trainer_runtime/__main__.py" in bundle.files
    assert not any("__pycache__" in path for path in bundle.files)


def test_a_template_that_asks_for_what_it_is_not_given_fails(planned: Plan, tmp_path: Path) -> None:
    for name in ("launch", "nanogpt"):
        (tmp_path / name).mkdir()
    (tmp_path / "launch" / "train.sh").touch()
    (tmp_path / "nanogpt" / "train.py.j2").write_text("{{ run_name }}")
    with pytest.raises(UndefinedError, match="run_name"):
        render(planned, _RUN_ID, Assets(tmp_path, tmp_path, find_assets().runtime))


# In place of the runtime, to print how it is called.
_RUNTIME = "import os, sys\nprint(sys.argv[1:], os.getcwd(), flush=True)\n"


def _run_by_hand(
    bundle: Bundle, folder: Path, runtime: str = _RUNTIME, **variables: str
) -> subprocess.CompletedProcess[str]:
    stand_ins = {
        "train.sh": bundle.files["train.sh"],
        "trainer_runtime/__init__.py": b"",
        "trainer_runtime/__main__.py": runtime.encode(),
    }
    _lay_down(stand_ins, folder)
    return subprocess.run(
        ["sh", str(folder / "train.sh")],
        cwd="/",
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_train_sh_prepares_then_trains_in_its_own_folder(bundle: Bundle, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    ended = _run_by_hand(bundle, folder)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        f"['prepare', 'config.json'] {folder}",
        f"['train', 'config.json'] {folder}",
    ]


def test_train_sh_takes_the_interpreter_that_it_is_given(bundle: Bundle, tmp_path: Path) -> None:
    runtime = "import sys\nprint(sys.argv[1:], sys.executable, flush=True)\n"
    ended = _run_by_hand(bundle, tmp_path / "run", runtime, PYTHON=sys.executable)
    assert ended.stdout.splitlines() == [
        f"['prepare', '--data-only', 'config.json'] {sys.executable}",
        f"['train', '--this-python', 'config.json'] {sys.executable}",
    ]


def test_train_sh_does_not_train_when_preparing_fails(bundle: Bundle, tmp_path: Path) -> None:
    ended = _run_by_hand(bundle, tmp_path / "run", f"{_RUNTIME}raise SystemExit(77)\n")
    assert ended.returncode == 77
    assert "['train'" not in ended.stdout


def _lay_down(files: dict[str, bytes], folder: Path) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
