"""The environment's preparation as the host runs it: a process in the run's folder."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.host.fake_packages import make_environment, make_wheel
from support.host.prepared_run import Box, make_box, output_of
from support.runs.running_run import command_line, let_it_run, wait_until

from trainer_runtime.core.config import RunConfig
from trainer_runtime.host.files.resolved_environment import trainer_environment
from trainer_runtime.host.prepare.cache_roots import registered

pytestmark = [pytest.mark.slow, pytest.mark.engine]

ROUNDS = int(os.environ.get("TRAINMASTER_FAULT_ROUNDS", "3"))
UNUSABLE = 77
FAKE_TORCH = {"torch/__init__.py": "raise ImportError('libfake.so.12: cannot open')\n"}


def torch_of(python: str) -> str:
    """Version and place of an interpreter's PyTorch, without its import."""
    code = "from importlib import metadata, util; "
    code += "print(metadata.version('torch'), util.find_spec('torch').origin)"
    return output_of(python, code)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> Box:
    """A host that has built an environment with version 1.0 of a package of its own."""
    box = make_box(tmp_path_factory.mktemp("built") / "runs" / "built-abc234", shared_cache)
    make_wheel(own_wheels(box), "tinypack", requires=["torch>=2"])
    (box.folder / "requirements-extra.txt").write_text("tinypack>=1  # a comment\n")
    assert box.prepare(requirements=True, wheels=str(own_wheels(box))) == 0, box.log
    return box


def own_wheels(box: Box) -> Path:
    return box.folder.parent / "wheels"


@pytest.mark.smoke
def test_an_interpreter_that_has_everything_is_taken_as_it_is(box: Box, tmp_path: Path) -> None:
    box.cache = tmp_path / "cache"
    assert box.prepare() == 0, box.log
    assert box.settled["python"] == sys.executable
    assert (box.settled["how"], box.settled["hash"]) == ("as it is", None)
    assert not (box.cache / "venvs").exists()
    assert list((box.cache / "torch").glob("*.json"))


def test_the_cache_learns_which_root_uses_it(box: Box, tmp_path: Path) -> None:
    box.cache = tmp_path / "cache"
    assert box.prepare() == 0, box.log
    assert registered(box.cache) == [box.folder.parent]


@pytest.mark.smoke
def test_what_is_missing_comes_on_top_and_the_torch_beneath_stays(built: Box) -> None:
    python = built.settled["python"]
    assert built.settled["how"] == f"on top of {sys.executable}"
    assert python == f"{built.cache}/venvs/{built.settled['hash']}/bin/python"
    assert output_of(python, "import tinypack; print(tinypack.VERSION)") == "1.0"
    assert torch_of(python) == torch_of(sys.executable)
    assert "pip: Successfully installed tinypack-1.0" in built.log


def test_what_only_makes_things_faster_builds_nothing(box: Box) -> None:
    assert box.prepare(optional=["fastpack>=1"]) == 0, box.log
    assert box.settled["how"] == "as it is"


def test_what_only_makes_things_faster_comes_with_what_is_built(box: Box) -> None:
    for name in ("tinypack", "fastpack"):
        make_wheel(own_wheels(box), name)
    (box.folder / "requirements-extra.txt").write_text("tinypack>=1\n")
    wheels = str(own_wheels(box))
    assert box.prepare(requirements=True, wheels=wheels, optional=["fastpack>=1"]) == 0, box.log
    assert output_of(box.settled["python"], "import fastpack, tinypack; print(1)") == "1"


def test_two_runs_at_once_build_one_environment_and_another_set_of_wheels_another(
    built: Box, box: Box, tmp_path: Path, shared_cache: Path
) -> None:
    wheels = tmp_path / "wheels"
    for version in ("1.0", "1.1"):
        make_wheel(wheels, "tinypack", version, requires=["torch>=2"])
    other = make_box(tmp_path / "runs" / "other-abc234", shared_cache)
    for one in (box, other):
        (one.folder / "requirements-extra.txt").write_text("tinypack>=1  # a comment\n")
        one.config(requirements=True, wheels=str(wheels))
    processes = [box.start(), other.start()]
    assert [process.wait(timeout=240) for process in processes] == [0, 0], box.log + other.log
    assert box.settled == other.settled
    assert (box.log + other.log).count("environment: building") == 1
    assert output_of(box.settled["python"], "import tinypack; print(tinypack.VERSION)") == "1.1"
    assert box.settled["hash"] != built.settled["hash"]


def test_a_preparation_killed_at_any_moment_is_resumed_in_a_rendered_folders_own_cache(
    box: Box, tmp_path: Path, shared_cache: Path
) -> None:
    shutil.copytree(shared_cache / "torch", box.folder / "cache" / "torch")
    box.cache = Path("cache")  # below the folder, as `render` writes it
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    wheels = tmp_path / "wheels"
    make_wheel(wheels, "survivor")
    (box.folder / "requirements-extra.txt").write_text("survivor\n")
    box.config(requirements=True, wheels=str(wheels))
    for _ in range(ROUNDS):
        process = box.start()
        let_it_run(chosen.uniform(0.05, 1.5))
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    assert box.start().wait(timeout=240) == 0, box.log
    assert box.settled["python"].startswith(f"{box.folder}/cache/venvs/")
    assert output_of(box.settled["python"], "import survivor; print(survivor.VERSION)") == "1.0"
    assert torch_of(box.settled["python"]) == torch_of(sys.executable)


def test_an_environment_without_its_mark_is_built_again(built: Box) -> None:
    entry = Path(built.settled["python"]).parents[1]
    (entry / ".complete").unlink()
    (entry / "leftover").touch()
    (built.attempt / "environment.json").unlink()
    assert built.start().wait(timeout=240) == 0, built.log
    assert (entry / ".complete").exists()
    assert not (entry / "leftover").exists()


def test_a_torch_that_does_not_work_is_passed_over(box: Box, tmp_path: Path) -> None:
    fake = make_wheel(tmp_path / "fake", "torch", "9.9", files=FAKE_TORCH)
    broken = make_environment(tmp_path / "broken", [fake])
    assert box.prepare(python=str(broken)) == 0, box.log
    assert box.settled["python"] == sys.executable
    assert "libfake.so.12: cannot open" in box.log


@pytest.mark.parametrize("mode", ["existing", "given"])
def test_one_interpreter_that_is_to_be_taken_must_work(box: Box, tmp_path: Path, mode: str) -> None:
    fake = make_wheel(tmp_path / "fake", "torch", "9.9", files=FAKE_TORCH)
    broken = make_environment(tmp_path / "broken", [fake])
    assert box.prepare(mode=mode, python=str(broken)) == UNUSABLE
    assert "libfake.so.12: cannot open" in box.log.splitlines()[-1]


def test_a_missing_wheel_is_reported_by_name(box: Box, tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (box.folder / "requirements-extra.txt").write_text("nowhere-to-be-found==1.0\n")
    assert box.prepare(requirements=True, wheels=str(tmp_path / "wheels")) == UNUSABLE
    assert "no wheel of nowhere-to-be-found" in box.log.splitlines()[-1]


def test_missing_wheels_are_reported(box: Box) -> None:
    (box.folder / "requirements-extra.txt").write_text("something\n")
    assert box.prepare(requirements=True, wheels="/nowhere/wheels") == UNUSABLE
    assert "/nowhere/wheels" in box.log.splitlines()[-1]


@pytest.mark.parametrize("requirement", ["torch==1.0", "heavy"])
def test_what_would_move_the_torch_is_refused(box: Box, tmp_path: Path, requirement: str) -> None:
    wheels = tmp_path / "wheels"
    make_wheel(wheels, "heavy", requires=["torch==1.0"])
    make_wheel(wheels, "torch", "1.0", files=FAKE_TORCH)
    (box.folder / "requirements-extra.txt").write_text(f"{requirement}\n")
    assert box.prepare(requirements=True, wheels=str(wheels)) == UNUSABLE
    last = box.log.splitlines()[-1]
    assert "torch==1.0" in last
    assert "held" in last


def test_the_setup_script_runs_first_in_the_runs_folder(box: Box) -> None:
    (box.folder / "setup.sh").write_text("echo made by setup | tee here.txt; echo $OMP_NUM_THREADS")
    assert box.prepare(setup=True) == 0, box.log
    assert (box.folder / "here.txt").read_text() == "made by setup\n"
    assert box.log.index("setup: made by setup\nsetup: 1\n") < box.log.index("environment: ")


def test_a_setup_script_that_fails_ends_it_with_its_last_words(box: Box) -> None:
    (box.folder / "setup.sh").write_text("echo no license >&2\nexit 3\n")
    assert box.prepare(setup=True) == UNUSABLE
    assert box.log.splitlines()[-1].endswith("environment.setup ended with 3: no license")
    assert not (box.attempt / "environment.json").exists()


def test_what_the_setup_script_leaves_running_delays_nothing(box: Box) -> None:
    (box.folder / "setup.sh").write_text("sleep 3600 & echo $! > pid\n")
    assert box.prepare(setup=True) == 0, box.log
    left = int((box.folder / "pid").read_text())
    assert any(command_line(left))  # nobody has waited for its end
    os.kill(left, signal.SIGKILL)


def test_a_killed_preparation_leaves_no_setup_script_running(box: Box) -> None:
    (box.folder / "setup.sh").write_text("echo $$ > pid.part && mv pid.part pid\nsleep 300\n")
    box.config(setup=True)
    process = box.start()
    pid = box.folder / "pid"
    wait_until(pid.exists, "the script has begun")
    process.kill()
    process.wait(timeout=60)
    wait_until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists(), "the script is gone")


MODULE = """\
echo noise of a profile
module() {
    case $2 in
        good/1.0) export GOOD=yes PATH="/opt/good/bin:$PATH"; unset GONE ;;
        *) echo "ERROR: Unable to locate a modulefile for '$2'"; return ${STATUS:-1} ;;
    esac
}
export GONE=there
"""


def test_modules_change_the_trainers_environment(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    (box.folder / ".bash_profile").write_text(MODULE)
    assert box.prepare(modules=["good/1.0"]) == 0, box.log
    variables = box.settled["variables"]
    assert (variables["GOOD"], variables["GONE"]) == ("yes", None)
    assert variables.keys() == {"GOOD", "GONE", "PATH"}
    monkeypatch.setenv("GONE", "there")
    python, environment = trainer_environment(box.attempt / "environment.json", RunConfig.parse({}))
    assert python == box.settled["python"]
    assert environment["GOOD"] == "yes"
    assert environment["PATH"].startswith("/opt/good/bin:")
    assert "GONE" not in environment


@pytest.mark.parametrize("status", ["1", "0"])
def test_a_missing_module_is_reported(box: Box, status: str) -> None:
    (box.folder / ".bash_profile").write_text(MODULE)
    box.variables["STATUS"] = status  # some versions of `module` fail with exit code 0
    assert box.prepare(modules=["good/1.0", "bad/2"]) == UNUSABLE
    assert "bad/2" in box.log.splitlines()[-1]
    assert "good" not in box.log.splitlines()[-1]


def test_a_box_without_modules_says_so(box: Box) -> None:
    (box.folder / ".bash_profile").write_text("type() { return 1; }\n")  # this one may have them
    assert box.prepare(modules=["good/1.0"]) == UNUSABLE
    assert "no 'module' command" in box.log.splitlines()[-1]


def test_without_pip_venv_and_uv_the_remedy_is_reported(box: Box, tmp_path: Path) -> None:
    bare = make_environment(tmp_path / "bare", bare=True)
    (box.folder / "requirements-extra.txt").write_text("something\n")
    box.variables["PATH"] = "/usr/bin-without-uv"
    assert box.prepare(mode="given", python=str(bare), requirements=True) == UNUSABLE
    assert "apt install python3-venv" in box.log.splitlines()[-1]
    assert "uv" in box.log.splitlines()[-1]


def test_a_network_that_fails_may_be_tried_again(box: Box) -> None:
    (box.folder / "requirements-extra.txt").write_text("not-in-any-local-index==1.0\n")
    box.variables |= {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_RETRIES": "1",
        "PIP_FIND_LINKS": "",
    }
    assert box.prepare(requirements=True) == 1
    assert "it may work later" in box.log.splitlines()[-1]


def test_an_attempt_that_is_settled_is_not_settled_again(box: Box) -> None:
    (box.folder / "setup.sh").write_text("echo once >> count\n")
    assert box.prepare(setup=True) == 0, box.log
    assert box.start().wait(timeout=240) == 0, box.log
    assert (box.folder / "count").read_text() == "once\n"


@pytest.mark.parametrize(
    ("config", "python"),
    [({"environment": {"python": "/opt/py"}}, "/opt/py"), ({}, sys.executable)],
)
def test_configs_of_earlier_versions_name_their_interpreter(
    tmp_path: Path, config: Mapping[str, Any], python: str
) -> None:
    assert trainer_environment(tmp_path / "environment.json", RunConfig.parse(config))[0] == python


def test_a_config_that_names_an_interpreter_alone_is_prepared(box: Box) -> None:
    box.config()
    path = box.attempt / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "environment": {"python": sys.executable}}))
    assert box.start().wait(timeout=240) == 0, box.log
    assert box.settled["python"] == sys.executable
