"""Bounds the logs that programs write themselves: of a long one the middle is freed.

A trainer's output goes straight into its log, and a pane's into `source.log`: nobody of ours could
count the bytes before they are written. So what lies between a log's beginning and its newest part
becomes a hole; its length, and the place of each line, stay.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from trainer_runtime.box.files.compaction import Punch, punch_hole
from trainer_runtime.box.files.layout import AttemptFolder, RunFolder
from trainer_runtime.box.files.write_room import bounds_of
from trainer_runtime.core.diagnosis.detectors.not_copied import LOG_CUT
from trainer_runtime.core.files.sparse import data_region
from trainer_runtime.core.records import dataclass

_CHECK_EVERY_S = 1.0
_MIB = 1 << 20
_BLOCK_BYTES = 512  # in which st_blocks counts
# Of a pane all is copied soon: so much is left for a copy that waits for room.
_SPOOL_BYTES = 128 * _MIB
_BEGINNING = 1 / 16


@dataclass(frozen=True, slots=True)
class _LongLog:
    """`most`: the bytes that it may take; `beginning`: those of them that are its first ones.
    `appended`: its writer opened it for appending alone, and nothing else needs it whole."""

    path: Path
    most: int
    beginning: int
    appended: bool = False

    def cut(self, punch: Punch) -> int | None:
        """Free the middle where it is too long; its length then, None where it is not.

        Raises:
            OSError: it is missing, or can't be opened.
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
            except OSError:
                if not self.appended:
                    return None  # this file system can't
                os.ftruncate(descriptor, 0)
            return status.st_size
        finally:
            os.close(descriptor)


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
        self._reported: set[Path] = set()

    def poll(self, number: int) -> None:
        """Cut what is too long by now; once a second at most."""
        now = self._clock()
        if now < self._due_t <= now + _CHECK_EVERY_S:
            return
        self._due_t = now + _CHECK_EVERY_S
        most = bounds_of(self._run.host_root).source
        for log in _logs(self._run.attempt(number), most):
            try:
                length = log.cut(self._punch)
            except OSError:
                continue  # it is not there
            if length is not None and not log.appended and log.path not in self._reported:
                self._reported.add(log.path)
                fields = {"what": LOG_CUT, "bound": "source", "limit": most, "bytes": length}
                self._write("decision", fields)


def _logs(attempt: AttemptFolder, most: int) -> Iterator[_LongLog]:
    beginning = int(most * _BEGINNING) // _MIB * _MIB
    if attempt.source.exists():
        spool = min(_SPOOL_BYTES, most)
        yield _LongLog(attempt.root / "source.log", spool, 0, appended=True)
        return
    for path in (attempt.train_log, attempt.setup_log, *attempt.ranks.glob("*.log")):
        yield _LongLog(path, most, beginning)
