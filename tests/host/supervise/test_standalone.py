"""`trainer_runtime train`: what train.sh becomes, with a program that prints how it was started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.programs.python_script import python_script

from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.host.supervise import standalone

REPOSITORY = Path(__file__).resolve().parents[3]
NAMES = ("OMP_NUM_THREADS", "GOMP_SPINCOUNT", "LOADED", "GONE", "LEVEL")
# In place of an interpreter: prints its arguments, its environment, and whether the lock is held.
PRINTING = f"""\
import json, os, sys
sys.path.insert(0, {str(REPOSITORY)!r})
from pathlib import Path
from trainer_runtime.core.files.durable import is_locked
environment = {{name: os.environ.get(name) for name in {NAMES!r}}}
print(json.dumps([sys.argv[1:], environment, is_locked(Path(".trainer.lock"))]))
"""


class ByHand:
    """A run's folder with a config, in which `train` is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "python"
        self.python.write_text(python_script(PRINTING))
        self.python.chmod(0o755)

    def write(self, name: str, document: dict[str, Any]) -> None:
        (self.folder / name).write_text(json.dumps(document))

    def train(self, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if name not in NAMES}
        return subprocess.run(
            [sys.executable, "-m", "trainer_runtime", "train", *options, "config.json"],
            cwd=self.folder,
            env={**kept, "PYTHONPATH": str(REPOSITORY), **variables},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def started(self, **variables: str) -> tuple[list[str], dict[str, str | None], bool]:
        """The trainer's arguments, its environment, and whether the run's lock is held."""
        ended = self.train(**variables)
        assert (ended.returncode, ended.stderr) == (0, "")
        arguments, environment, locked = json.loads(ended.stdout)
        return arguments, environment, locked


@pytest.fixture
def by_hand(tmp_path: Path) -> ByHand:
    made = ByHand(tmp_path)
    compute = {"device": "cpu", "threads": 3, "processes": 1}
    made.write("config.json", {"framework": "hf", "compute": compute, "env": {"LEVEL": "INFO"}})
    changed = {"LOADED": "yes", "GONE": None}
    made.write("environment.json", {"python": str(made.python), "variables": changed})
    return made


def test_the_trainer_has_the_interpreter_and_environment_that_were_prepared(
    by_hand: ByHand,
) -> None:
    arguments, environment, locked = by_hand.started(GONE="there", LEVEL="of the shell")
    assert arguments == ["train.py", "config.json"]
    assert environment == {
        "OMP_NUM_THREADS": "3",
        "GOMP_SPINCOUNT": "10000",
        "LOADED": "yes",
        "GONE": None,
        "LEVEL": "INFO",
    }
    assert locked


def test_what_the_shell_says_of_threads_counts(by_hand: ByHand) -> None:
    _, environment, _ = by_hand.started(OMP_NUM_THREADS="7", GOMP_SPINCOUNT="1")
    assert (environment["OMP_NUM_THREADS"], environment["GOMP_SPINCOUNT"]) == ("7", "1")


def test_several_ranks_are_started_as_a_supervised_run_s(by_hand: ByHand) -> None:
    compute = {"device": "cpu", "threads": 3, "processes": 2, "strategy": "ddp"}
    by_hand.write("config.json", {"framework": "hf", "compute": compute, "env": {}})
    arguments, _, _ = by_hand.started()
    assert arguments == ["-m", "trainer_runtime", "ranks", "config.json"]


def test_a_given_interpreter_is_taken_instead_of_the_prepared_one(by_hand: ByHand) -> None:
    (by_hand.folder / "train.py").write_text("import os; print(os.environ.get('GONE'))")
    ended = by_hand.train("--this-python", GONE="there")
    assert (ended.returncode, ended.stdout) == (0, "there\n")


def test_a_second_trainer_of_a_run_is_refused(by_hand: ByHand) -> None:
    lock = try_lock(by_hand.folder / ".trainer.lock")
    assert lock is not None
    ended = by_hand.train()
    os.close(lock)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "running already" in ended.stderr


def test_a_signal_that_comes_while_the_trainer_is_started_reaches_it() -> None:
    before = {
        number: signal.getsignal(number) for number in (*standalone._PASSED_ON, signal.SIGINT)
    }
    # Its first act, which comes before or after its start has returned.
    words = ["sh", "-c", "kill -TERM $PPID; exec sleep 600"]
    try:
        trainer = standalone._started(words, env=dict(os.environ), pass_fds=())
        assert trainer.wait(60) == -signal.SIGTERM
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
