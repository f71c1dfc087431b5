"""Extracts the metrics from a log file of any training."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from trainer_runtime.core.diagnosis.parse import Batch, Coverage, LogParser, Parsed
from trainer_runtime.core.diagnosis.parse.parser import MAX_KEYS
from trainmaster.metrics.log_file import read_chunks, refuse_binary
from trainmaster.store.buckets import Row

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
    """All points of one rank, the lowest that the log names, in the order of the log."""

    most_keys: ClassVar[int] = MAX_KEYS

    coverage: Coverage
    rank: int | None
    other_ranks: int
    size_bytes: int
    _columns: dict[str, _Column]

    def keys(self) -> list[str]:
        return sorted(self._columns)

    def rows(self, key: str) -> list[Row]:
        """The key's points; steps may repeat, or go back where the training was restarted."""
        column = self._columns.get(key)
        return [] if column is None else column.rows()

    def restarts(self, key: str) -> int:
        """How often the key's steps went back."""
        steps = self._columns[key].steps if key in self._columns else array("q")
        return sum(after < before for before, after in pairwise(steps))

    def oldest_t(self) -> float | None:
        """The earliest time of all points."""
        return min(self._times(), default=None)

    def newest_t(self) -> float | None:
        """The latest time of all points."""
        return max(self._times(), default=None)

    def _times(self) -> Iterator[float]:
        columns = self._columns.values()
        return (t for column in columns for t in column.times if not math.isnan(t))


def read_metrics(path: Path) -> FileMetrics:
    """Read a log in chunks, up to its size at the time of opening. Points between junk are found.

    Raises:
        UsageError: `LOG_NOT_READABLE`, also for a binary file without points.
    """
    parser, by_rank, size = LogParser(), dict[int, dict[str, _Column]](), 0
    begin = b""
    for chunk in read_chunks(path):
        begin = begin or chunk.lstrip(b"\0")
        _take(parser.feed(chunk), by_rank)
        size += len(chunk)
    _take(parser.close(), by_rank)
    if not by_rank:
        refuse_binary(path, begin)
    rank = min(by_rank, default=None)
    columns = {} if rank is None else by_rank[rank]
    return FileMetrics(parser.coverage, rank, max(0, len(by_rank) - 1), size, columns)


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
    """Offset, step and time of each row; None for an impossible step."""
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
