"""A run's job on this machine, from outside: its supervisor, and all that it keeps running."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from trainer_runtime.host.containers.container import Image, containers, remove_containers
from trainer_runtime.host.containers.engine import Engine, NoEngineError, find_engine
from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.processes.hold import marker
from trainer_runtime.host.processes.identity import (
    ProcessIdentity,
    carriers,
    descendants,
    identify,
    process_ids,
    send,
)

# By verbs of the runtime whose working folder is the run's. They carry no marker: a stop is not
# meant for them.
_OF_ATTEMPT = (b"hold", b"prepare")
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
    """Repeated until nothing is left: what is killed may just have started another process, or a
    container."""
    any_alive = False
    deadline = time.monotonic() + _ENDS_WITHIN_S
    while time.monotonic() < deadline:
        doomed = processes()
        for process in doomed:
            send(process, signal.SIGKILL)
        any_alive = any_alive or bool(doomed)
        if not doomed and not (any_alive and _removes_containers(run)):
            break
        time.sleep(_POLL_S)
    return any_alive


def _removes_containers(run: RunFolder) -> bool:
    """Whether there were any to remove: hold, which would have, was killed."""
    engine = _engine(run)
    if engine is None or not containers(engine, run.run_id):
        return False
    remove_containers(engine, run.run_id)
    return True


def _engine(run: RunFolder) -> Engine | None:
    """The engine of the newest attempt; None where the run has no containers."""
    for number in _attempts(run)[-1:]:
        image = Image.find(run.attempt(number).environment)
        if image is not None:
            return image.engine
    config = read_json(run.config) or {}
    if (config.get("compute") or {}).get("launcher") != "docker":
        return None
    try:
        return find_engine(os.environ)  # a preparation has not settled it yet
    except NoEngineError:
        return None


def find_supervisor(run: RunFolder) -> ProcessIdentity | None:
    """The process that supervises the run on this machine."""
    root = run.root.resolve()
    for pid in process_ids():
        process = identify(pid)
        if process is not None and _called(pid) == (b"supervise", root):
            return process
    return None


def _processes(run: RunFolder) -> list[ProcessIdentity]:
    """Also what a supervisor has started just as it was killed."""
    root = run.root.resolve()
    own = [
        process
        for pid in process_ids()
        if (_called(pid) or (b"", None))[1] == root and (process := identify(pid)) is not None
    ]
    started = [child for process in own for child in descendants(process.pid)]
    return [*own, *started, *_of_newest_attempt(run)]


def _of_newest_attempt(run: RunFolder) -> list[ProcessIdentity]:
    """Also what an earlier supervisor has started."""
    return [
        process
        for number in _attempts(run)[-1:]
        for process in carriers(marker(run.run_id, number))
    ]


def _called(pid: int) -> tuple[bytes, Path] | None:
    """The verb that supervises, prepares or holds a run, and the run's folder, by a process's
    command line; None for any other process."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        at = words.index(b"trainer_runtime") + 1
        verb, argument = words[at], os.fsdecode(words[at + 1])
        here = os.readlink(f"/proc/{pid}/cwd")
    except (OSError, ValueError, IndexError):
        return None
    if verb == b"supervise":
        return verb, Path(here, argument or ".").resolve()
    return (verb, Path(here).resolve()) if verb in _OF_ATTEMPT else None


def _attempts(run: RunFolder) -> list[int]:
    try:
        names = os.listdir(run.root / "attempts")
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isdigit())
