"""Real `hold` processes over a tiny training script."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.runs.running_run import wait_until

from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.core.policy.endings import Exit
from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.processes.hold import marker
from trainer_runtime.host.processes.identity import ProcessIdentity, carriers, is_alive, send
from trainer_runtime.host.processes.processes import BoxProcesses

REPOSITORY = Path(__file__).parents[3]
# Says that it lives, then does what the attempt's config says.
SCRIPT = """\
import json, os, signal, subprocess, sys, time
config = json.load(open(sys.argv[1]))
with open("lives", "a") as lives:
    lives.write(f"{sys.argv[1]} {os.getpid()}\\n")
print("terminal" if sys.stdout.isatty() else "no terminal", os.environ.get("LEVEL"), flush=True)
exec(config["does"])
"""


class Holding:
    """A run's folder, and the hold processes started in it."""

    def __init__(self, root: Path) -> None:
        self.run = RunFolder(root)
        self.processes: list[subprocess.Popen[bytes]] = []
        root.mkdir(parents=True)
        (root / "train.py").write_text(SCRIPT)

    def start(self, number: int, does: str = "pass", **config: Any) -> subprocess.Popen[bytes]:
        """Start hold for an attempt whose trainer does this Python."""
        folder = self.run.attempt(number)
        if not folder.root.exists():
            folder.root.mkdir(parents=True)
            folder.config.write_text(json.dumps({"does": does, **config}))
        process = subprocess.Popen(
            [sys.executable, "-m", "trainer_runtime", "hold", str(self.run.root), str(number)],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def hold(self, number: int, does: str = "pass", **config: Any) -> dict[str, Any] | None:
        """Hold an attempt to its end; its exit record."""
        assert self.start(number, does, **config).wait(timeout=60) == 0
        return read_json(self.run.attempt(number).exit)

    def log(self, number: int) -> bytes:
        return self.run.attempt(number).train_log.read_bytes()

    def lives(self) -> list[str]:
        """The config of each trainer that ever lived, in order."""
        path = self.run.root / "lives"
        return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []

    def trainer(self, number: int) -> ProcessIdentity:
        """The identity of a running trainer that has come to its own code."""

        def found() -> ProcessIdentity | None:
            data = (read_json(self.run.attempt(number).process) or {}).get("trainer")
            config = f"attempts/{number}/config.json"
            return ProcessIdentity.from_dict(data) if data and config in self.lives() else None

        identity: ProcessIdentity = wait_until(found, "the trainer runs")
        return identity

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        for folder in (self.run.root / "attempts").glob("*"):
            for carrier in carriers(marker(self.run.run_id, int(folder.name))):
                send(carrier, signal.SIGKILL)


@pytest.fixture
def holding(tmp_path: Path) -> Iterator[Holding]:
    holding = Holding(tmp_path / f"held-{os.getpid()}")
    yield holding
    holding.end()


@pytest.mark.parametrize(
    ("does", "code", "number"),
    [
        ("pass", 0, None),
        ("sys.exit(77)", 77, None),
        ("raise ValueError('x')", 1, None),
        ("os.kill(os.getpid(), signal.SIGKILL)", None, 9),
        ("os.kill(os.getpid(), signal.SIGTERM)", None, 15),
    ],
)
def test_how_the_trainer_ended_is_on_record(
    holding: Holding, does: str, code: int | None, number: int | None
) -> None:
    outcome = holding.hold(1, does)
    assert outcome is not None
    assert (outcome["code"], outcome["signal"]) == (code, number)
    observed = BoxProcesses(holding.run.root).observe(1)
    assert (observed.state, observed.end) == ("ended", Exit(code, number))


def test_the_trainers_output_goes_into_the_attempts_log(holding: Holding) -> None:
    holding.hold(1, "print('out'); sys.stderr.write('err\\n')", env={"LEVEL": "INFO"})
    assert holding.log(1).split(b"\n") == [b"no terminal INFO", b"out", b"err", b""]


def test_a_terminal_is_given_where_the_config_asks_for_one(holding: Holding) -> None:
    outcome = holding.hold(1, "print('x' * 200_000); sys.exit(3)", pty=True)
    assert outcome is not None and outcome["code"] == 3
    assert holding.log(1).startswith(b"terminal None\r\n")
    assert holding.log(1).count(b"x") == 200_000


def test_a_terminal_that_something_left_open_does_not_hide_the_trainers_end(
    holding: Holding,
) -> None:
    left = "subprocess.Popen(['sleep', '600'], start_new_session=True); print('last'); sys.exit(3)"
    outcome = holding.hold(1, left, pty=True)
    assert outcome is not None and outcome["code"] == 3
    assert b"last" in holding.log(1)


def test_a_missing_interpreter_ends_with_127_and_is_reported(holding: Holding) -> None:
    outcome = holding.hold(1, environment={"python": "/nowhere/python3"})
    assert outcome is not None and outcome["code"] == 127
    assert b"/nowhere/python3" in holding.log(1)
    assert holding.lives() == []


def test_the_environments_interpreter_is_used(holding: Holding, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "my own"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    holding.hold(1, environment={"python": str(python)})
    assert holding.log(1).startswith(b"my own\n")


def test_hold_killed_leaves_the_trainer_and_its_log_running(holding: Holding) -> None:
    wait = "\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('continued', flush=True)"
    hold = holding.start(1, wait)
    trainer = holding.trainer(1)
    os.killpg(hold.pid, signal.SIGKILL)
    hold.wait()
    assert is_alive(trainer)
    processes = BoxProcesses(holding.run.root)
    assert processes.observe(1).state == "running"
    (holding.run.root / "go").touch()
    wait_until(lambda: not is_alive(trainer), "the trainer ends")
    assert holding.log(1).endswith(b"continued\n")
    assert read_json(holding.run.attempt(1).exit) is None
    assert processes.observe(1).end == Exit(None, None)


def test_a_second_hold_of_an_attempt_starts_no_second_trainer(holding: Holding) -> None:
    first = holding.start(1, "\nwhile not os.path.exists('go'): time.sleep(0.01)")
    holding.trainer(1)
    second = holding.start(1)
    (holding.run.root / "go").touch()
    assert first.wait(timeout=60) == second.wait(timeout=60) == 0
    assert len(holding.lives()) == 1


def test_the_next_attempt_waits_until_nothing_of_the_one_before_lives(holding: Holding) -> None:
    first = holding.start(1, "time.sleep(600)")
    trainer = holding.trainer(1)
    os.killpg(first.pid, signal.SIGKILL)
    assert try_lock(holding.run.trainer_lock) is None
    second = holding.start(2)
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(timeout=1.0)
    assert holding.lives() == ["attempts/1/config.json"]
    send(trainer, signal.SIGKILL)
    assert second.wait(timeout=60) == 0
    assert holding.lives() == ["attempts/1/config.json", "attempts/2/config.json"]
    lock = try_lock(holding.run.trainer_lock)
    assert lock is not None
    os.close(lock)


def test_an_attempt_that_a_later_one_has_overtaken_is_not_started(holding: Holding) -> None:
    assert holding.hold(2) is not None
    assert holding.hold(1) is None
    assert holding.lives() == ["attempts/2/config.json"]


def test_the_trainer_and_all_that_carry_its_marker_can_be_killed(holding: Holding) -> None:
    worker = "subprocess.Popen(['sleep', '600'], start_new_session=True); time.sleep(600)"
    hold = holding.start(1, worker)
    holding.trainer(1)
    mark = marker(holding.run.run_id, 1)
    wait_until(lambda: len(carriers(mark)) == 2, "the worker is there")
    BoxProcesses(holding.run.root).kill(1)
    wait_until(lambda: not carriers(mark), "all are gone")
    assert hold.wait(timeout=60) == 0
    assert (read_json(holding.run.attempt(1).exit) or {})["signal"] == 9


def test_sigterm_is_sent_once_to_each_trainer(holding: Holding) -> None:
    counting = (
        "heard = []\nsignal.signal(signal.SIGTERM, lambda *_: heard.append(1))\n"
        "open('ready', 'w').close()\n"
        "while not os.path.exists('go'): time.sleep(0.01)\nsys.exit(len(heard))"
    )
    hold = holding.start(1, "\n" + counting)
    wait_until((holding.run.root / "ready").exists, "the trainer listens")
    processes = BoxProcesses(holding.run.root)
    for _ in range(5):
        processes.terminate(1)
    (holding.run.root / "go").touch()
    assert hold.wait(timeout=60) == 0
    assert (read_json(holding.run.attempt(1).exit) or {})["code"] == 1
