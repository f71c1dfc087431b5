"""Reads the kernel's view of an attempt's processes: state, CPU time, what a thread waits for."""

from __future__ import annotations

import os
import platform
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.diagnosis.stacks.names import RANK_VARIABLE, WORLD_VARIABLE, rank_of
from trainer_runtime.host.files.configs import config_of
from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.processes.hold import marker
from trainer_runtime.host.processes.identity import ProcessIdentity, carriers, identify, is_alive

# Calls of the kernel in which a disk keeps a thread waiting: their numbers on either machine.
_NUMBERS: dict[str, tuple[int, int]] = {
    "read": (0, 63),
    "write": (1, 64),
    "pread": (17, 67),
    "pwrite": (18, 68),
    "readv": (19, 65),
    "writev": (20, 66),
    "flock": (73, 32),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "open": (257, 56),
}
_CALLS = {
    machine: {numbers[index]: name for name, numbers in _NUMBERS.items()}
    for index, machine in enumerate(("x86_64", "aarch64"))
}
_OF_NO_FILE = frozenset({"open"})  # its first argument is not a descriptor
_MOST_THREADS = 256
_MOST_PROCESSES = 512


@dataclass(frozen=True, slots=True)
class ThreadState:
    """One thread. `state` is the kernel's letter (R, S, D, …).

    `call` is the call of the kernel that it is in, as far as we know it, `target` the file of that
    call; both None where that can't be seen.
    """

    state: str
    call: str | None = None
    target: str | None = None


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One process of an attempt. `stacks` is the file that it writes its stacks into when it is
    asked, None where it would not. `threads`: the main thread first."""

    identity: ProcessIdentity
    parent: int
    cpu_s: float
    threads: tuple[ThreadState, ...]
    rank: int | None
    world_size: int | None
    stacks: Path | None

    @property
    def pid(self) -> int:
        return self.identity.pid


def states(run: RunFolder, attempt: int) -> list[ProcessState]:
    """The living processes of an attempt, by pid: who carries its marker, those that are on record,
    and their children."""
    processes = {process.pid: process for process in carriers(marker(run.run_id, attempt))}
    for recorded in _on_record(run, attempt):
        if is_alive(recorded):
            processes[recorded.pid] = recorded
    _add_children(processes)
    folder = run.attempt(attempt).root.resolve()
    by_pid = sorted(processes.values(), key=lambda process_of: process_of.pid)
    inspected = (inspect_process(process, folder) for process in by_pid)
    return [state for state in inspected if state is not None]


def inspect_process(process: ProcessIdentity, folder: Path) -> ProcessState | None:
    """The state of a process whose stacks lie in `folder`; None once it is gone."""
    try:
        fields = _stat(process.pid)
        environment = _environment(process.pid)
        stacks = _stacks(process.pid, folder)
        threads = tuple(_threads(process.pid))
    except (OSError, IndexError, ValueError):
        return None
    if identify(process.pid) != process:
        return None
    named = environment.get(RANK_VARIABLE, "")
    world = environment.get(WORLD_VARIABLE, "")
    rank = rank_of(stacks.name) if stacks is not None else None
    if rank is None and named.isdecimal():
        rank = int(named)
    return ProcessState(
        process,
        parent=int(fields[1]),
        cpu_s=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
        threads=threads,
        rank=rank,
        world_size=int(world) if world.isdecimal() else None,
        stacks=stacks,
    )


def _on_record(run: RunFolder, attempt: int) -> list[ProcessIdentity]:
    """The trainer that hold has started; of an attached run, its recorded processes."""
    trainer = (read_json(run.attempt(attempt).process) or {}).get("trainer")
    attached = config_of(run).attached
    recorded = [trainer, *(attached.processes if attached is not None else ())]
    return [ProcessIdentity.from_dict(fields) for fields in recorded if isinstance(fields, dict)]


def _add_children(processes: dict[int, ProcessIdentity]) -> None:
    """Add the processes that those in `processes` have started, however many generations on."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                children.setdefault(int(_stat(int(name))[1]), []).append(int(name))
            except (OSError, IndexError, ValueError):
                continue
    waiting = list(processes)
    while waiting and len(processes) < _MOST_PROCESSES:
        for child in children.get(waiting.pop(), ()):
            process = identify(child) if child not in processes else None
            if process is not None:
                processes[child] = process
                waiting.append(child)


def _stacks(pid: int, folder: Path) -> Path | None:
    """The file that this process writes its stacks into: open, and SIGUSR2 has a handler.

    Without a handler the signal would end the process.
    """
    status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    if not int(caught.split()[1], 16) >> (signal.SIGUSR2 - 1) & 1:
        return None
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return None
    for descriptor in descriptors:
        try:
            target = Path(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
        except OSError:
            continue
        if rank_of(target.name) is not None and target.parent == folder:
            return target
    return None


def _threads(pid: int) -> Iterator[ThreadState]:
    numbers = sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    for number in sorted(numbers, key=lambda thread: thread != pid)[:_MOST_THREADS]:
        folder = f"/proc/{pid}/task/{number}"
        try:
            state = _fields(Path(f"{folder}/stat"))[0]
        except (OSError, IndexError):
            continue
        call, target = _call(pid, folder)
        yield ThreadState(state, call, target)


def _call(pid: int, folder: str) -> tuple[str | None, str | None]:
    """The call of the kernel that a thread is in, and the file that it is about."""
    words = _text(f"{folder}/syscall").split()
    if len(words) < 2 or not words[0].isdecimal():
        return None, None
    call = _CALLS.get(platform.machine(), {}).get(int(words[0]))
    if call is None or call in _OF_NO_FILE:
        return call, None
    try:
        target = os.readlink(f"/proc/{pid}/fd/{int(words[1], 16)}")
    except (OSError, ValueError):
        return call, None
    return call, target if target.startswith("/") else None


def _environment(pid: int) -> dict[str, str]:
    pairs = _text(f"/proc/{pid}/environ").split("\0")
    return {
        name: value
        for name, equals, value in (pair.partition("=") for pair in pairs)
        if equals and name in (RANK_VARIABLE, WORLD_VARIABLE)
    }


def _text(path: str) -> str:
    """What the kernel says there; nothing where it refuses."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    return _fields(Path(f"/proc/{pid}/stat"))


def _fields(path: Path) -> list[str]:
    text = path.read_text(errors="replace")
    return text[text.rfind(")") + 2 :].split()
