"""Takes the stacks of an attempt's processes, from outside and within a time limit.

A process is asked by SIGUSR2 only where it holds the file open that it then writes into, and has a
handler for the signal; see train/loop/stacks.py. What a dump says of its process is only where it
ends:
so those who share a file are asked one after the other.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.processes.identity import send
from trainer_runtime.host.processes.process_state import ProcessState, states

WITHIN_S = 5.0
_ANSWER_S = 1.0  # a process that has not begun to answer by then is stuck in the kernel
_QUIET_S = 0.04  # a dump is written in one go
_LARGEST_FILE_BYTES = 4 << 20
_LARGEST_DUMP_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Taken:
    """What a process wrote when it was asked; empty where it did not answer."""

    process: ProcessState
    text: str


def take(run: RunFolder, attempt: int, within_s: float = WITHIN_S) -> list[Taken]:
    """The stacks of an attempt's processes at present, by pid."""
    processes = states(run, attempt)
    folder = run.attempt(attempt)
    if not processes or not folder.root.is_dir():
        return []
    deadline = time.monotonic() + within_s
    lock = _lock(folder.stacks_lock, deadline)
    if lock is None:
        return [Taken(process, "") for process in processes]
    try:
        return [Taken(process, text) for process, text in _ask_all(processes, deadline)]
    finally:
        os.close(lock)


def as_text(taken: Sequence[Taken]) -> str:
    """The stacks one after the other, each under the process's own line."""
    parts = []
    for stack in taken:
        threads = stack.process.threads
        described = [f"pid {stack.process.pid}"]
        if stack.process.rank is not None:
            described.append(f"rank {stack.process.rank}")
        if threads:
            described.append(f"state {threads[0].state}")
        parts.append(f"== {', '.join(described)} ==\n{stack.text or 'no answer'}\n")
    return "\n".join(parts)


def _lock(path: Path, deadline: float) -> int | None:
    """One at a time: two who ask at once would read each other's answers."""
    while (lock := try_lock(path)) is None:
        if time.monotonic() > deadline:
            return None
        time.sleep(0.02)
    return lock


def _ask_all(requested: Sequence[ProcessState], deadline: float) -> list[tuple[ProcessState, str]]:
    waiting: dict[Path, list[ProcessState]] = {}
    for process in _parents_first(requested):
        if process.stacks is not None:
            waiting.setdefault(process.stacks, []).append(process)
    answers: dict[int, str] = {}
    while waiting and time.monotonic() < deadline:
        asked = {file: processes.pop(0) for file, processes in waiting.items()}
        waiting = {file: processes for file, processes in waiting.items() if processes}
        answers.update(_ask(asked, min(deadline, time.monotonic() + _ANSWER_S)))
    return [(process, answers.get(process.pid, "")) for process in requested]


def _parents_first(processes: Sequence[ProcessState]) -> list[ProcessState]:
    """Trainers before what they started: if time is short, their stacks matter most."""
    pids = {process.pid for process in processes if process.stacks is not None}
    return sorted(processes, key=lambda process: process.parent in pids)


def _ask(asked: Mapping[Path, ProcessState], deadline: float) -> dict[int, str]:
    """Signal one process per file, and read what each file has grown by."""
    begins: dict[Path, int] = {}
    for file, process in asked.items():
        with suppress(OSError):
            if file.stat().st_size > _LARGEST_FILE_BYTES:
                os.truncate(file, 0)  # its writers append
            begins[file] = file.stat().st_size
            send(process.identity, signal.SIGUSR2)
    _wait(begins, deadline)
    return {asked[file].pid: _read(file, begin) for file, begin in begins.items()}


def _wait(begins: Mapping[Path, int], deadline: float) -> None:
    """Until every file has grown and grows no more."""
    sizes = dict(begins)
    changed_s = time.monotonic()
    while (now := time.monotonic()) < deadline:
        for file in begins:
            size = file.stat().st_size if file.exists() else sizes[file]
            if size != sizes[file]:
                sizes[file], changed_s = size, now
        answered = all(sizes[file] > begin for file, begin in begins.items())
        if answered and now - changed_s >= _QUIET_S:
            return
        time.sleep(0.005)


def _read(file: Path, begin: int) -> str:
    try:
        with file.open("rb") as opened:
            opened.seek(begin)
            return opened.read(_LARGEST_DUMP_BYTES).decode(errors="replace")
    except OSError:
        return ""
