"""What a test or the whole session of tests has left running, processes and threads: finds and
ends them."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from trainmaster.backends.debug.trainer import SimulatedTrainer

# In the environment of the session's workers and of whatever they start.
SESSION_VARIABLE = "TRAINMASTER_TEST_SESSION"
_BOUND_S = 120.0


def end_processes_of(folder: Path) -> None:
    """End whatever works in a test's folder or has its path in its command line or environment."""
    _end(lambda: list(_processes(_mentions(folder))))


def end_supervisors_of(root: Path) -> None:
    """End the supervisors that the debug host of this folder still has as threads of this process.

    One that has a message to deliver tries for minutes: it would ask the network during another
    test. It ends once its run's folder is gone; before, its trainer is killed.
    """
    folders = {folder.name: folder for folder in root.glob("runs/*")}
    deadline = time.monotonic() + _BOUND_S
    while living := [one for one in threading.enumerate() if _run_of(one) in folders]:
        if time.monotonic() > deadline:
            raise AssertionError(f"can't be ended: {[thread.name for thread in living]}")
        trainers = [one for one in living if isinstance(one, SimulatedTrainer)]
        for trainer in trainers:
            trainer.killed.set()
        for supervisor in () if trainers else living:
            shutil.rmtree(folders[_run_of(supervisor)], ignore_errors=True)
        living[0].join(0.1)


def _run_of(thread: threading.Thread) -> str:
    """The run of a thread of the debug host: `supervisor-RUN`, `trainer-RUN-ATTEMPT`."""
    kind, _, rest = thread.name.partition("-")
    return rest.rpartition("-")[0] if kind == "trainer" else rest


def left_by_session(session: str, folder: Path, patience_s: float) -> list[str]:
    """What still runs after `patience_s` of what a session started, one line each; it is ended.

    `folder` holds the folders of all its tests.
    """
    mark = f"{SESSION_VARIABLE}={session}".encode()

    def found() -> list[int]:
        mentions = _mentions(folder)
        return list(_processes(lambda pid: mark in _read(pid, "environ") or mentions(pid)))

    deadline = time.monotonic() + patience_s
    while (pids := found()) and time.monotonic() < deadline:
        time.sleep(0.1)
    lines = [described(pid) for pid in pids]
    if pids:
        _end(found)
    return lines


def _mentions(folder: Path) -> Callable[[int], bool]:
    path = os.fsencode(folder)
    inside = (path + b"/", path + b"\0", path + b":")

    def mentions(pid: int) -> bool:
        where = _working_folder(pid) + b"\0"
        text = where + _read(pid, "cmdline") + b"\0" + _read(pid, "environ")
        return path in text and any(words in text for words in inside)

    return mentions


def _processes(chosen: Callable[[int], bool]) -> Iterator[int]:
    """The pids chosen, without this process and those that it was started by."""
    kept = {1, *_ancestors(os.getpid())}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in kept and chosen(int(name)):
            yield int(name)


def _end(found: Callable[[], list[int]]) -> None:
    deadline = time.monotonic() + _BOUND_S
    while pids := [pid for pid in found() if not _is_zombie(pid)]:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise AssertionError(f"can't be ended: {[described(pid) for pid in pids]}")
        time.sleep(0.01)


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        yield pid
        status = _read(pid, "stat").rpartition(b")")[2].split()
        pid = int(status[1]) if status else 0


def _is_zombie(pid: int) -> bool:
    return _read(pid, "stat").rpartition(b")")[2].split()[:1] in ([b"Z"], [])


def described(pid: int) -> str:
    """The pid, folder and command line of a process."""
    words = _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
    return f"{pid} in {_working_folder(pid).decode(errors='replace') or '?'}: {words[:300]}"


def _working_folder(pid: int) -> bytes:
    try:
        return os.readlink(f"/proc/{pid}/cwd".encode())
    except OSError:
        return b""


def _read(pid: int, name: str) -> bytes:
    try:  # without `Path`: every test reads this of every process
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""
