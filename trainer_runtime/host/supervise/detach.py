"""Starts a run's supervisor in a session of its own, and waits until it holds the run's lock."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from trainer_runtime.core.answers.supervisor import SupervisorAnswer
from trainer_runtime.core.files.durable import is_locked
from trainer_runtime.host.files.layout import RunFolder

_WITHIN_S = 15.0
_LAST_WORDS_BYTES = 2000


def start_detached(folder: Path) -> SupervisorAnswer:
    """Make sure that a supervisor runs, in a session of its own; says whether one did already."""
    run = RunFolder(folder)
    run.supervisor_errors.parent.mkdir(exist_ok=True)
    if is_locked(run.supervisor_lock):
        return SupervisorAnswer(started=False)
    readable, writable = os.pipe()
    try:
        process = _started(run, writable)
    finally:
        os.close(writable)
    try:
        if _says_that_it_runs(readable) or _ended_well(process):
            return SupervisorAnswer(started=True, pid=process.pid)
    finally:
        os.close(readable)
    words = run.supervisor_errors.read_bytes()[-_LAST_WORDS_BYTES:].decode(errors="replace")
    return SupervisorAnswer(started=False, error=f"exit code {process.poll()}: {words}")


def report_running(descriptor: int) -> None:
    """Report by the pipe of `start_detached` that the lock is held; it may be gone by now."""
    with suppress(BrokenPipeError):
        os.write(descriptor, b"1")
    os.close(descriptor)


def _started(run: RunFolder, pipe: int) -> subprocess.Popen[bytes]:
    with run.supervisor_errors.open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "trainer_runtime", "supervise", ".", "--report", str(pipe)],
            cwd=run.root,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            start_new_session=True,
            pass_fds=[pipe],
        )


def _says_that_it_runs(pipe: int) -> bool:
    ready, _, _ = select.select([pipe], [], [], _WITHIN_S)
    return bool(ready and os.read(pipe, 1))


def _ended_well(process: subprocess.Popen[bytes]) -> bool:
    """Whether it ended since another one supervises the run. One that neither reported nor ended
    has not come up."""
    try:
        return process.wait(1.0) == 0
    except subprocess.TimeoutExpired:
        return False
