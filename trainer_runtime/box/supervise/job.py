"""A run's job on this machine, from outside: its supervisor, and all that it keeps running."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from trainer_runtime.box.containers.container import Image, remove_containers
from trainer_runtime.box.files.layout import RunFolder
from trainer_runtime.box.processes.hold import marker
from trainer_runtime.box.processes.identity import (
    ProcessIdentity,
    carriers,
    descendants,
    identify,
    process_ids,
    send,
)

_ENDS_WITHIN_S = 10.0
_POLL_S = 0.01


def signal_job(run: RunFolder, number: signal.Signals) -> bool:
    """Signal the run's supervisor; False where it has none."""
    supervisor = find_supervisor(run)
    return supervisor is not None and send(supervisor, number)


def cancel_job(run: RunFolder) -> bool:
    """Kill the run's supervisor and all that runs for its newest attempt; False where none does."""
    return _kill(run, lambda: _processes(run))


def cancel_own_job(run: RunFolder) -> None:
    """The same from within: kill all that runs for the run, and this process, its supervisor."""
    own = os.getpid()
    _kill(run, lambda: [*descendants(own), *_of_newest_attempt(run)])
    os.kill(own, signal.SIGKILL)


def _kill(run: RunFolder, processes: Callable[[], list[ProcessIdentity]]) -> bool:
    """Repeated until nothing is left: what is killed may just have started another process."""
    found = False
    deadline = time.monotonic() + _ENDS_WITHIN_S
    while (doomed := processes()) and time.monotonic() < deadline:
        found = True
        for process in doomed:
            send(process, signal.SIGKILL)
        time.sleep(_POLL_S)
    if found:
        _remove_containers(run)  # hold, which would have, was killed
    return found


def _remove_containers(run: RunFolder) -> None:
    for number in _attempts(run)[-1:]:
        image = Image.find(run.attempt(number).environment)
        if image is not None:
            remove_containers(image.engine, run.run_id)


def find_supervisor(run: RunFolder) -> ProcessIdentity | None:
    """The process that supervises the run on this machine."""
    root = run.root.resolve()
    for pid in process_ids():
        process = identify(pid)
        if process is not None and _supervised_by(pid) == root:
            return process
    return None


def _processes(run: RunFolder) -> list[ProcessIdentity]:
    supervisor = find_supervisor(run)
    found = [] if supervisor is None else [supervisor, *descendants(supervisor.pid)]
    return [*found, *_of_newest_attempt(run)]


def _of_newest_attempt(run: RunFolder) -> list[ProcessIdentity]:
    """Also what an earlier supervisor has started."""
    return [
        process
        for number in _attempts(run)[-1:]
        for process in carriers(marker(run.run_id, number))
    ]


def _supervised_by(pid: int) -> Path | None:
    """The folder that a process supervises, by its command line; None for any other process."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        at = words.index(b"supervise")
        if words[at - 1] != b"trainer_runtime":
            return None
        folder = os.fsdecode(words[at + 1]) or "."
        return Path(os.readlink(f"/proc/{pid}/cwd"), folder).resolve()
    except (OSError, ValueError, IndexError):
        return None


def _attempts(run: RunFolder) -> list[int]:
    try:
        names = os.listdir(run.root / "attempts")
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isdigit())
