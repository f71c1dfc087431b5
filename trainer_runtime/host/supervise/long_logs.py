"""Bounds the logs that programs write themselves: of a long one the middle is freed.

A trainer's output goes straight into its log, and a pane's into `source.log`: nobody of ours could
count the bytes before they are written. So what lies between a log's beginning and its newest part
becomes a hole; its length, and the place of each line, stay.

Where the file system has no holes, a program's log stays whole while its disk keeps the margin.
Below that it is emptied: its writer has opened it for appending. Its first and its newest
lines are then in `<name>.beginning` and `<name>.newest`; readers begin again at its start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.diagnosis.detectors.not_copied import LOG_CUT, LOG_NOT_CUT
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.files.sparse import data_region
from trainer_runtime.host.files.compaction import Punch, punch_hole
from trainer_runtime.host.files.layout import AttemptFolder, RunFolder
from trainer_runtime.host.files.write_room import bounds_of, is_short

_CHECK_EVERY_S = 1.0
_MIB = 1 << 20
_BLOCK_BYTES = 512  # in which st_blocks counts
# Of a pane all is copied soon: so much is left for a copy that waits for room.
_SPOOL_BYTES = 128 * _MIB
_BEGINNING = 1 / 16
# Of a log that is emptied: its newest part, and a sixteenth of that from its beginning.
_KEPT_BYTES = 16 * _MIB


@dataclass(frozen=True, slots=True)
class _LongLog:
    """`most`: the bytes that it may take; `beginning`: those of them that are its first ones.
    `appended`: nothing needs it whole once it was read."""

    path: Path
    most: int
    beginning: int
    appended: bool = False

    def cut(self, punch: Punch, is_short: Callable[[], bool]) -> tuple[str, int] | None:
        """Free the middle where it is too long: what was done, and its length; None where it is
        not. `is_short`: whether its disk has less than its margin.

        Raises:
            OSError: it is missing, or can't be opened or emptied.
        """
        descriptor = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if status.st_blocks * _BLOCK_BYTES <= self.most:
                return None
            end = (status.st_size - self.most // 2) // _MIB * _MIB
            region = data_region(descriptor, self.beginning)
            if region is None or region[0] >= end:
                return None
            try:
                punch(descriptor, self.beginning, end - self.beginning)
            except OSError:  # this file system can't
                if not self.appended and not is_short():
                    return LOG_NOT_CUT, status.st_size
                self._empty(descriptor)
            return LOG_CUT, status.st_size
        finally:
            os.close(descriptor)

    def _empty(self, descriptor: int) -> None:
        """What is printed between the copy and the truncation, within milliseconds, is lost."""
        kept = min(_KEPT_BYTES, self.most // 2)
        ends: dict[str, bytes] = {}
        if not self.appended:
            size = os.fstat(descriptor).st_size
            ends["newest"] = os.pread(descriptor, kept, max(0, size - kept))
            if not self.path.with_name(f"{self.path.name}.beginning").exists():
                ends["beginning"] = os.pread(descriptor, int(kept * _BEGINNING), 0)
        os.ftruncate(descriptor, 0)  # first, as the disk may have no room for the copies
        for end, data in ends.items():
            write_atomic(self.path.with_name(f"{self.path.name}.{end}"), data)


class LongLogs:
    """Those of a run's newest attempt. `write`: the journal's."""

    def __init__(
        self,
        run: RunFolder,
        clock: Callable[[], float],
        write: Callable[[str, Mapping[str, object]], None],
        punch: Punch = punch_hole,
    ) -> None:
        self._run, self._clock, self._write, self._punch = run, clock, write, punch
        self._due_t = 0.0
        self._reported: set[tuple[str, Path]] = set()

    def poll(self, number: int) -> None:
        """Cut what is too long by now; once a second at most."""
        now = self._clock()
        if now < self._due_t <= now + _CHECK_EVERY_S:
            return
        self._due_t = now + _CHECK_EVERY_S
        bounds, attempt = bounds_of(self._run.host_root), self._run.attempt(number)
        for log in _logs(attempt, bounds.source):
            try:
                cut = log.cut(self._punch, lambda: is_short(attempt.root, bounds))
            except OSError:
                continue  # it is not there
            if cut is not None and not log.appended:
                self._report(log, *cut)

    def _report(self, log: _LongLog, what: str, length: int) -> None:
        """Once for each log."""
        if (what, log.path) not in self._reported:
            self._reported.add((what, log.path))
            limit = bounds_of(self._run.host_root).source
            self._write(
                "decision", {"what": what, "bound": "source", "limit": limit, "bytes": length}
            )


def _logs(attempt: AttemptFolder, most: int) -> Iterator[_LongLog]:
    beginning = int(most * _BEGINNING) // _MIB * _MIB
    if attempt.source.exists():
        spool = min(_SPOOL_BYTES, most)
        yield _LongLog(attempt.root / "source.log", spool, 0, appended=True)
        return
    for path in (attempt.train_log, attempt.setup_log, *attempt.ranks.glob("*.log")):
        yield _LongLog(path, most, beginning)
