"""The metrics in a log file of any training, with nothing but the file."""

from __future__ import annotations

import math
import os
import stat
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from trainer_runtime.core.parse import Batch, Coverage, LogParser, Parsed
from trainmaster.buckets import Row
from trainmaster.errors import StateError, UsageError
from trainmaster.workspace import Workspace

_CHUNK_BYTES = 1 << 20
_FARTHEST_STEP = 2**53


@dataclass(slots=True)
class _Column:
    """The points of one key in the file's order; 24 bytes each."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def rows(self) -> list[Row]:
        times = (None if math.isnan(t) else t for t in self.times)
        return list(zip(self.steps, times, self.values, strict=True))


@dataclass(slots=True)
class FileMetrics:
    """What a log tells of one rank, the lowest that it names: every point, in the log's order."""

    coverage: Coverage
    rank: int | None
    other_ranks: int
    _columns: dict[str, _Column]

    def keys(self) -> list[str]:
        return sorted(self._columns)

    def rows(self, key: str) -> list[Row]:
        """The key's points; a step may come again, or go back where the training was restarted."""
        column = self._columns.get(key)
        return [] if column is None else column.rows()

    def restarts(self, key: str) -> int:
        """How often the key's steps went back."""
        steps = self._columns[key].steps if key in self._columns else array("q")
        return sum(after < before for before, after in pairwise(steps))

    def newest_t(self) -> float | None:
        """Of all points, the latest time that a line told."""
        told = [t for column in self._columns.values() for t in column.times if not math.isnan(t)]
        return max(told, default=None)


def is_file(workspace: Workspace, name: str) -> bool:
    """Whether `name` is none of a run but a path at which something lies.

    Raises:
        StateError: `RUN_NOT_FOUND` where it is neither.
    """
    try:
        workspace.control.run(name)
    except StateError:
        if not Path(name).exists():
            raise
        return True
    return False


def read_metrics(path: Path) -> FileMetrics:
    """Read a log, as long as it is when it is opened, in pieces.

    Raises:
        UsageError: `BAD_ARGUMENT` where it is no regular file, or can't be read.
    """
    parser, by_rank = LogParser(), dict[int, dict[str, _Column]]()
    try:
        # Without waiting: a pipe's other end may never be opened.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            for chunk in _chunks(file, path):
                _take(parser.feed(chunk), by_rank)
    except OSError as error:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{path} can't be read: {error.strerror}.",
            "Name a log file that this user may read.",
            field="run",
        ) from error
    _take(parser.close(), by_rank)
    rank = min(by_rank, default=None)
    columns = {} if rank is None else by_rank[rank]
    return FileMetrics(parser.coverage, rank, max(0, len(by_rank) - 1), columns)


def _chunks(file: BinaryIO, path: Path) -> Iterator[bytes]:
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(
            "BAD_ARGUMENT", f"{path} is no regular file.", "Name a log file.", field="run"
        )
    left = found.st_size
    while left > 0 and (chunk := file.read(min(_CHUNK_BYTES, left))):
        left -= len(chunk)
        yield chunk


def _take(parsed: Parsed, by_rank: dict[int, dict[str, _Column]]) -> None:
    """Add the points of some lines. Batches come by shape, lines of several shapes alternate."""
    mixed: dict[tuple[int, str], list[tuple[int, int, float, float]]] = {}
    for batch in parsed.batches:
        places = _places(batch)
        for key, values in zip(batch.keys, batch.columns, strict=True):
            points = mixed.setdefault((batch.rank, key), [])
            points += [
                (*place, value) for place, value in zip(places, values, strict=True) if place
            ]
    for (rank, key), points in mixed.items():
        column = by_rank.setdefault(rank, {}).setdefault(key, _Column())
        for _, step, t, value in sorted(points, key=_offset):
            column.steps.append(step)
            column.times.append(t)
            column.values.append(value)


def _places(batch: Batch) -> list[tuple[int, int, float] | None]:
    """Offset, step and time of each row; None for a step that is none."""
    return [
        (batch.offset_of(row), int(step), _time(batch.time_of(row)))
        if abs(step) < _FARTHEST_STEP
        else None
        for row, step in enumerate(batch.steps)
    ]


def _time(t: float | None) -> float:
    return math.nan if t is None else t


def _offset(point: tuple[int, int, float, float]) -> int:
    return point[0]
