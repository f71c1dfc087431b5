"""Compresses what is old in a run's journal and events, while the run continues."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trainer_runtime.host.files.compaction import Compaction
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.lease.deadlines import read_session

_CHECK_EVERY_S = 60.0


class OldRegions:
    """A region at a time: a twelfth of a second of a tick, for each 4 MiB that are written.

    Not in a session whose folder is copied as its output: the copy has no holes.
    """

    def __init__(self, run: RunFolder, clock: Callable[[], float]) -> None:
        self._run = run
        self._clock = clock
        self._due_t = clock() + _CHECK_EVERY_S
        self._journal = Compaction(run.journal)
        self._events: dict[int, Compaction] = {}
        self._finished: set[int] = set()
        self._is_copied = read_session(run) is not None

    def poll(self, attempts: Iterable[int]) -> None:
        """Compress the next old region of these attempts' events, or of the journal."""
        if self._is_copied or self._clock() < self._due_t:
            return
        try:
            if self._journal.step() or self._compress_events(sorted(attempts)):
                return
        except OSError:
            pass  # no room, or a failing disk: the file is as it was
        self._due_t = self._clock() + _CHECK_EVERY_S

    def _compress_events(self, attempts: list[int]) -> bool:
        for number in attempts:
            if number in self._finished:
                continue
            path = self._run.attempt(number).events
            if self._events.setdefault(number, Compaction(path)).step():
                return True
            if number != attempts[-1]:  # nothing is added to it any more
                self._finished.add(number)
                del self._events[number]
        return False
