"""What follows a run or a file ends by a signal, at once, and leaves nothing behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.attack.endless_files import ENDLESS
from support.core.journal_records import attempt_starting, state
from support.runs.planted_journal import PlantedJournal
from support.session.child_processes import until_gone

from trainer_runtime.core.files.durable import try_lock
from trainmaster.home.paths import Home
from trainmaster.sync.workspace import open_workspace

pytestmark = pytest.mark.slow

_BOUND_S = 60.0
_END_S = 5.0
_ENDS = {signal.SIGTERM: -signal.SIGTERM, signal.SIGINT: 130}


def _is_followed(home: Path) -> bool:
    """Whether a process holds the lock of who follows the planted host."""
    lock = try_lock(Home(home).follower_lock("gpu1"))
    if lock is not None:
        os.close(lock)
    return lock is None


def _started(home: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "trainmaster", *words]
    environment = {**os.environ, "TRAINMASTER_HOME": str(home)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )


def _until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _BOUND_S
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> tuple[float, bytes]:
    began = time.monotonic()
    process.send_signal(number)
    _, errors = process.communicate(timeout=_BOUND_S)
    return time.monotonic() - began, errors


@pytest.mark.parametrize("number", list(_ENDS))
@pytest.mark.parametrize("words", [("logs", "-f"), ("wait",)], ids=["logs", "wait"])
def test_what_follows_a_run_ends_by_a_signal(
    home: Path,
    words: Sequence[str],
    number: signal.Signals,
    started_here: Callable[[], list[int]],
) -> None:
    with open_workspace({"TRAINMASTER_HOME": str(home)}) as workspace:
        run = PlantedJournal(workspace, "one")
        run.write(attempt_starting(1), state("preparing"), state("running"))
    process = _started(home, *words, run.run_id)
    _until(lambda: _is_followed(home), process)
    ended_s, errors = _end(process, number)
    assert ended_s <= _END_S
    assert process.returncode == _ENDS[number]
    assert b"Traceback" not in errors
    until_gone(started_here(), _END_S)
    assert not _is_followed(home)


@pytest.mark.parametrize("number", list(_ENDS))
def test_what_reads_a_file_on_ends_by_a_signal(
    home: Path, tmp_path: Path, number: signal.Signals
) -> None:
    log = tmp_path / "train.log"
    log.write_text("begun\n")
    process = _started(home, "logs", str(log), "-f")
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    ended_s, errors = _end(process, number)
    assert ended_s <= _END_S
    assert process.returncode == _ENDS[number]
    assert b"Traceback" not in errors


@pytest.mark.parametrize("number", list(_ENDS))
def test_what_searches_an_endless_file_ends_by_a_signal(
    home: Path, tmp_path: Path, number: signal.Signals, started_here: Callable[[], list[int]]
) -> None:
    log = tmp_path / "endless.log"
    ENDLESS["sparse"](log, random.Random(0))
    process = _started(home, "logs", str(log), "-f", "--grep", "l[o]ss")
    _until(lambda: _has_open(process.pid, log), process)
    ended_s, errors = _end(process, number)
    assert ended_s <= _END_S
    assert process.returncode == _ENDS[number]
    assert b"Traceback" not in errors
    until_gone(started_here(), _END_S)


def _has_open(pid: int, path: Path) -> bool:
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            if os.readlink(f"/proc/{pid}/fd/{number}") == str(path):
                return True
        except OSError:  # closed meanwhile
            continue
    return False
