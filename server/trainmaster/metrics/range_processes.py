"""Reads ranges of a file in processes of their own, ahead of the use of their results."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from trainer_runtime.core.processes.parent_death import die_with_parent
from trainer_runtime.core.records import dataclass

_AHEAD = 2  # ranges for each process that are read or wait
Range = tuple[int, int]
_T = TypeVar("_T")


def in_processes(
    read: Callable[[int, int], _T | None], ranges: Iterator[Range], processes: int
) -> Iterator[tuple[Range, _T | None]]:
    """Each range, in order, with what `read` returns of it; None where its process was killed.

    Each process is a copy of this one that keeps its state from range to range. They end with the
    iteration, and with this process.
    """
    with ExitStack() as stack:
        pool = _Pool(read)
        stack.callback(pool.end)
        with suppress(OSError):  # no more processes may be started: fewer read, or this one alone
            for _ in range(processes):
                pool.start()
        yield from pool.results(ranges)


@dataclass(slots=True, eq=False)
class _Process:
    """A process, the connection to it, and the ranges that it was given."""

    process: BaseProcess
    connection: Connection[Any, Any]
    due: list[Range] = field(default_factory=list)


class _Pool(Generic[_T]):
    def __init__(self, read: Callable[[int, int], _T | None]) -> None:
        self._read = read
        self._processes: list[_Process] = []
        self._found: dict[Range, _T | None] = {}

    def start(self) -> None:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        # Who waits at a connection sees that the other end is dead once nobody else holds it.
        held = [ours, *(one.connection for one in self._processes)]
        process = context.Process(target=_serve, args=(self._read, theirs, held))
        try:
            process.start()
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._processes.append(_Process(process, ours))

    def end(self) -> None:
        for one in self._processes:
            one.process.kill()
        for one in self._processes:
            one.process.join()
            one.connection.close()

    def results(self, ranges: Iterator[Range]) -> Iterator[tuple[Range, _T | None]]:
        due: list[Range] = []
        most = _AHEAD * len(self._processes)
        while True:
            while len(due) < most and (following := next(ranges, None)) is not None:
                due.append(following)
                self._give(following)
            if not due:
                return
            self._receive(0.0)  # so that none waits until its result is taken
            while due[0] not in self._found:
                self._receive(None)
            first = due.pop(0)
            yield first, self._found.pop(first)

    def _give(self, following: Range) -> None:
        """Have the process read a range that has the least to do."""
        chosen = min(self._processes, key=lambda one: len(one.due))
        chosen.due.append(following)
        try:
            chosen.connection.send(following)
        except OSError:
            self._give_up(chosen)

    def _receive(self, within_s: float | None) -> None:
        waiting = {id(one.connection): one for one in self._processes if one.due}
        for connection in wait([one.connection for one in waiting.values()], within_s):
            one = waiting[id(connection)]
            try:
                self._found[one.due[0]] = one.connection.recv()
                del one.due[0]
            except (EOFError, OSError):
                self._give_up(one)

    def _give_up(self, lost: _Process) -> None:
        """The process has ended: nothing is known of its ranges."""
        self._found.update(dict.fromkeys(lost.due))
        lost.due.clear()


def _serve(
    read: Callable[[int, int], object], connection: Connection[Any, Any], held: Sequence[Any]
) -> None:
    die_with_parent()
    for other in held:
        other.close()
    with suppress(EOFError, OSError):  # nobody waits for it any more
        while True:
            connection.send(read(*connection.recv()))
