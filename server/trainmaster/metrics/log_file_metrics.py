"""Extracts the metrics from a log file of any training, in bounded memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

from trainer_runtime.core.diagnosis.parse import Batch, Coverage, LogParser, Parsed
from trainer_runtime.core.diagnosis.parse.coverage import frequent_lines
from trainer_runtime.core.diagnosis.parse.parser import BLOCK_BYTES, MAX_KEYS
from trainer_runtime.core.records import dataclass
from trainmaster.metrics.log_aggregates import LogAggregates
from trainmaster.metrics.log_file import read_chunks, refuse_binary
from trainmaster.metrics.log_pattern import refuse_without_match, taught_patterns
from trainmaster.metrics.thinned_series import ThinnedSeries, most_points
from trainmaster.metrics.understood import Understood
from trainmaster.store.buckets import Row

_FARTHEST_STEP = 2**53
_UNKNOWN_TIME = array("d", [math.nan])
# Called with the number of bytes that were read so far.
OnProgress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is kept of a log.

    `keys`: the series; None: all. `first` to `last`, both included: the steps that are also kept
    apart, so that a part of a long series stays exact. `times`: whether lines are searched for
    their time. `pattern`: the shape of its lines, where it was taught.
    """

    keys: Collection[str] | None = None
    first: int | None = None
    last: int | None = None
    times: bool = True
    pattern: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, for `from_dict`."""
        keys = None if self.keys is None else sorted(self.keys)
        return {
            "keys": keys,
            "first": self.first,
            "last": self.last,
            "times": self.times,
            "pattern": self.pattern,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Wanted:
        keys = None if data["keys"] is None else frozenset(data["keys"])
        return cls(keys, data["first"], data["last"], data["times"], data["pattern"])

    @property
    def has_range(self) -> bool:
        return self.first is not None or self.last is not None

    def within(self, step: int) -> bool:
        return (self.first is None or step >= self.first) and (
            self.last is None or step <= self.last
        )


EVERYTHING = Wanted()


@dataclass(slots=True)
class _Kept:
    """One key: all its points, and those within the selected steps."""

    whole: ThinnedSeries
    part: ThinnedSeries


@dataclass(slots=True)
class FileMetrics:
    """The series of one rank, the lowest that the log names, in the order of the log.

    `oldest_t` and `newest_t`: Unix seconds of its points; None where no line has a time, or none
    was wanted.
    """

    most_keys: ClassVar[int] = MAX_KEYS

    coverage: Coverage
    rank: int | None
    other_ranks: int
    size_bytes: int
    wanted: Wanted
    oldest_t: float | None
    newest_t: float | None
    understood: Understood
    _keys: set[str]
    _kept: dict[str, _Kept]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, for `from_dict`."""
        return {
            "coverage": self.coverage.to_dict(),
            "rank": self.rank,
            "other_ranks": self.other_ranks,
            "size_bytes": self.size_bytes,
            "wanted": self.wanted.to_dict(),
            "times": [self.oldest_t, self.newest_t],
            "understood": self.understood.to_dict(),
            "keys": self.keys(),
            "kept": {
                key: [kept.whole.to_dict(), kept.part.to_dict()] for key, kept in self._kept.items()
            },
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FileMetrics:
        oldest_t, newest_t = data["times"]
        kept = {
            key: _Kept(ThinnedSeries.from_dict(whole), ThinnedSeries.from_dict(part))
            for key, (whole, part) in data["kept"].items()
        }
        return cls(
            Coverage.from_dict(data["coverage"]),
            data["rank"],
            data["other_ranks"],
            data["size_bytes"],
            Wanted.from_dict(data["wanted"]),
            oldest_t,
            newest_t,
            Understood(**data["understood"]),
            set(data["keys"]),
            kept,
        )

    def keys(self) -> list[str]:
        return sorted(self._keys)

    def series(self, key: str) -> ThinnedSeries:
        """A key's points; steps may repeat, or go back where the training was restarted."""
        kept = self._kept.get(key)
        return ThinnedSeries() if kept is None else kept.whole

    def part(self, key: str) -> ThinnedSeries:
        """Those within the selected steps."""
        kept = self._kept.get(key)
        return ThinnedSeries() if kept is None else kept.part

    def rows(self, key: str) -> list[Row]:
        return self.series(key).rows()

    def restarts(self, key: str) -> int:
        """How often the key's steps went back."""
        return self.series(key).restarts


def read_metrics(
    path: Path, wanted: Wanted = EVERYTHING, on_progress: OnProgress | None = None
) -> FileMetrics:
    """Read a log in chunks, up to its size at the time of opening. Points between junk are found.

    Raises:
        UsageError: `LOG_NOT_READABLE`, also for a binary file without points;
            `PATTERN_INVALID`, `PATTERN_TOO_SLOW`, `PATTERN_MATCHES_NOTHING`.
    """
    reader, size = _Reader(wanted), 0
    patterns = taught_patterns(wanted.pattern)
    parser = LogParser(wanted.keys and {*wanted.keys, *reader.aggregates.bases}, patterns)
    begin = b""
    for chunk in read_chunks(path):
        begin = begin or chunk.lstrip(b"\0")
        for start in range(0, len(chunk), BLOCK_BYTES):  # used while it is in the cache
            reader.take(parser.feed(chunk[start : start + BLOCK_BYTES]))
        size += len(chunk)
        if on_progress is not None:
            on_progress(size)
    reader.take(parser.close())
    reader.finish()
    if patterns:
        refuse_without_match(str(path), parser.coverage)
    if not reader.ranks:
        refuse_binary(path, begin)
        parser.coverage.samples = frequent_lines(begin)
    reader.understood.finish(parser)
    rank, others = min(reader.ranks, default=None), max(0, len(reader.ranks) - 1)
    times = reader.oldest_t, reader.newest_t
    keys, kept = reader.keys | reader.of_ranks.keys(), reader.kept | reader.of_ranks
    return FileMetrics(
        parser.coverage, rank, others, size, wanted, *times, reader.understood, keys, kept
    )


@dataclass(slots=True)
class _Reader:
    """Adds the points of the lowest rank so far, and the wanted aggregates over all ranks."""

    wanted: Wanted
    ranks: set[int] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    kept: dict[str, _Kept] = field(default_factory=dict)
    of_ranks: dict[str, _Kept] = field(default_factory=dict)
    aggregates: LogAggregates = field(init=False)
    oldest_t: float | None = None
    newest_t: float | None = None
    understood: Understood = field(default_factory=Understood)

    def __post_init__(self) -> None:
        self.aggregates = LogAggregates(self.wanted.keys or ())

    def finish(self) -> None:
        """Add the aggregates that are not complete yet."""
        self._add_aggregates(self.aggregates.finish())

    def take(self, parsed: Parsed) -> None:
        """Add the points of some lines. Batches come by shape, lines of several shapes alternate
        within a block."""
        self.understood.take(parsed)
        for _, found in groupby(parsed.batches, key=_block):
            batches = list(found)
            self._take_block(batches)
            if self.aggregates.bases:
                self._add_aggregates(self.aggregates.take(batches))

    def _add_aggregates(self, found: Mapping[str, tuple[list[int], list[float]]]) -> None:
        for key, (steps, values) in found.items():
            self._extend(self.of_ranks, key, steps, [math.nan] * len(steps), values)

    def _take_block(self, batches: Sequence[Batch]) -> None:
        by_key: dict[str, list[_Column]] = {}
        lowest = min([*self.ranks, *(batch.rank for batch in batches)])
        if self.ranks and lowest < min(self.ranks):
            self.keys, self.kept, self.oldest_t, self.newest_t = set(), {}, None, None
        for batch in batches:
            self.ranks.add(batch.rank)
            if batch.rank != lowest:
                continue
            times = self._times(batch)
            self.keys.update(batch.keys)
            for key, values in zip(batch.keys, batch.columns, strict=True):
                if self.wanted.keys is None or key in self.wanted.keys:
                    by_key.setdefault(key, []).append(_Column(batch, times, values))
        for key, found in by_key.items():
            self._add(key, found)

    def _add(self, key: str, found: Sequence[_Column]) -> None:
        for steps, times, values in _in_order(found):
            self._extend(self.kept, key, steps, times, values)

    def _extend(
        self,
        among: dict[str, _Kept],
        key: str,
        steps: Sequence[int],
        times: Sequence[float],
        values: Sequence[float],
    ) -> None:
        kept = among.get(key)
        if kept is None:
            most = most_points(MAX_KEYS if self.wanted.keys is None else len(self.wanted.keys))
            kept = among[key] = _Kept(ThinnedSeries(most), ThinnedSeries(most))
        kept.whole.add(steps, times, values)
        if self.wanted.has_range:
            chosen = [i for i, step in enumerate(steps) if self.wanted.within(step)]
            columns = ([column[i] for i in chosen] for column in (steps, times, values))
            kept.part.add(*columns)  # type: ignore[arg-type]

    def _times(self, batch: Batch) -> Sequence[float]:
        if not self.wanted.times:
            return _UNKNOWN_TIME * len(batch.steps)
        found = [batch.time_of(row) for row in range(len(batch.steps))]
        known = [t for t in found if t is not None]
        if known:
            self.oldest_t = min(known if self.oldest_t is None else [self.oldest_t, *known])
            self.newest_t = max(known if self.newest_t is None else [self.newest_t, *known])
        return [math.nan if t is None else t for t in found]


@dataclass(frozen=True, slots=True)
class _Column:
    """One key's values in a batch, with the times of its rows."""

    batch: Batch
    times: Sequence[float]
    values: Sequence[float]


def _in_order(
    found: Sequence[_Column],
) -> Iterator[tuple[Sequence[int], Sequence[float], Sequence[float]]]:
    """Steps, times and values of one key in one block, in the order of its lines."""
    if len(found) == 1:
        steps, column = found[0].batch.steps, found[0]
        if steps and _is_possible(min(steps)) and _is_possible(max(steps)):
            yield array("q", map(int, steps)), column.times, column.values
            return
    rows = [
        row
        for column in found
        for row in zip(
            column.batch.lines, column.batch.steps, column.times, column.values, strict=True
        )
        if _is_possible(row[1])
    ]
    if rows:
        rows.sort(key=itemgetter(0))
        _, floats, times, values = zip(*rows, strict=True)
        yield list(map(int, floats)), times, values


def _block(batch: Batch) -> int:
    return id(batch.block)


def _is_possible(step: float) -> bool:
    return abs(step) < _FARTHEST_STEP
