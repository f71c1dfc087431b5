from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from trainmaster.plan import CorpusFacts, Decision, HostFacts, Plan, plan
from trainmaster.plan.render import Bundle, render, training_config
from trainmaster.plan.spec import TrainingSpec
from trainmaster.words.assets import Assets, find_assets
from trainmaster.words.yaml12 import load_yaml

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


@pytest.mark.parametrize(
    "name", ["train.sh", "training_config.yaml", "config.json", "requirements.txt"]
)
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
    spec = make_spec("name=other", "steps=7", "env.A=$(touch /tmp/x)", "model.style=llama")
    other = render(plan(spec, cpu_host, text_corpus), "other-abc234", find_assets())
    same = [path for path in bundle.files if path.endswith((".py", ".sh", ".txt"))]
    assert "train.sh" in same
    assert all(bundle.files[path] == other.files[path] for path in same)


def test_the_bundle_holds_the_trainer_and_the_whole_runtime(bundle: Bundle) -> None:
    runtime = find_assets().runtime
    assert (
        bundle.files["train.py"] == (find_assets().templates / "nanogpt" / "train.py").read_bytes()
    )
    assert (
        bundle.files["trainer_runtime/core/protocol/lines.py"]
        == (runtime / "core" / "protocol" / "lines.py").read_bytes()
    )
    assert "trainer_runtime/__main__.py" in bundle.files
    assert not any("__pycache__" in path for path in bundle.files)


def test_a_template_that_asks_for_what_it_is_not_given_fails(planned: Plan, tmp_path: Path) -> None:
    for name in ("launch", "nanogpt"):
        (tmp_path / name).mkdir()
    (tmp_path / "nanogpt" / "train.py").write_text("")
    (tmp_path / "launch" / "train.sh.j2").write_text("{{ run_name }}")
    with pytest.raises(UndefinedError, match="run_name"):
        render(planned, _RUN_ID, Assets(tmp_path, find_assets().runtime))


def test_train_sh_prepares_then_trains_with_the_configs_environment(
    bundle: Bundle, tmp_path: Path
) -> None:
    """With stand-ins for the runtime and the trainer, which write down how they were called."""
    program = "import os, sys\nprint(sys.argv[1:], os.environ.get('LEVEL'), flush=True)\n"
    folder = tmp_path / "a folder"
    stand_ins = {
        "train.sh": bundle.files["train.sh"],
        "config.json": bundle.files["config.json"],
        "train.py": program.encode(),
        "trainer_runtime/__init__.py": b"",
        "trainer_runtime/__main__.py": program.encode(),
    }
    _lay_down(stand_ins, folder)
    ended = subprocess.run(
        ["sh", str(folder / "train.sh")],
        cwd="/",
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [
        "['prepare', 'config.json'] None",
        "['config.json'] INFO",
    ]


def _run_by_hand(bundle: Bundle, folder: Path, **variables: str) -> list[str]:
    """The calls of runtime and trainer, where both print how they were called."""
    prepare = (
        "import json, sys\n"
        "print(sys.argv[1:])\n"
        "settled = {'python': sys.executable, 'variables': {'LOADED': 'yes', 'GONE': None}}\n"
        "if '--data-only' not in sys.argv: json.dump(settled, open('environment.json', 'w'))\n"
    )
    train = "import os\nprint([os.environ.get(name) for name in ('LOADED', 'GONE', 'LEVEL')])\n"
    stand_ins = {
        "train.sh": bundle.files["train.sh"],
        "config.json": bundle.files["config.json"],
        "train.py": train.encode(),
        "trainer_runtime/__init__.py": b"",
        "trainer_runtime/__main__.py": prepare.encode(),
    }
    _lay_down(stand_ins, folder)
    environment = {"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1", "GONE": "there"}
    ended = subprocess.run(
        ["sh", "train.sh"],
        cwd=folder,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return ended.stdout.splitlines()


def test_train_sh_trains_in_the_environment_that_was_settled(
    bundle: Bundle, tmp_path: Path
) -> None:
    calls = _run_by_hand(bundle, tmp_path / "run")
    assert calls == ["['prepare', 'config.json']", "['yes', None, 'INFO']"]


def test_train_sh_takes_the_interpreter_that_it_is_given(bundle: Bundle, tmp_path: Path) -> None:
    calls = _run_by_hand(bundle, tmp_path / "run", PYTHON=sys.executable)
    assert calls == ["['prepare', '--data-only', 'config.json']", "[None, 'there', 'INFO']"]


def test_train_sh_does_not_train_when_preparing_fails(bundle: Bundle, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stand_ins = {
        "train.sh": bundle.files["train.sh"],
        "config.json": bundle.files["config.json"],
        "train.py": b"print('trained')\n",
        "trainer_runtime/__init__.py": b"",
        "trainer_runtime/__main__.py": b"raise SystemExit(77)\n",
    }
    _lay_down(stand_ins, folder)
    ended = subprocess.run(
        ["sh", "train.sh"], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (77, "")


def _lay_down(files: dict[str, bytes], folder: Path) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
