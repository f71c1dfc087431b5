"""Extracts the metrics from a log file of any training, in bounded memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice, pairwise
from pathlib import Path
from typing import ClassVar

from trainer_runtime.core.diagnosis.parse import Batch, Coverage, LogParser, Parsed
from trainer_runtime.core.diagnosis.parse.coverage import frequent_lines
from trainer_runtime.core.diagnosis.parse.parser import BLOCK_BYTES, MAX_KEYS
from trainmaster.metrics.log_aggregates import LogAggregates, rows_of
from trainmaster.metrics.log_file import read_chunks, refuse_binary
from trainmaster.metrics.log_pattern import refuse_without_match, taught_patterns
from trainmaster.metrics.thinned_series import ThinnedSeries, falls_in, most_points
from trainmaster.metrics.understood import Understood
from trainmaster.metrics.wanted import EVERYTHING, Wanted
from trainmaster.store.buckets import Row

_FARTHEST_STEP = 2**53
_MOST_EMPTY_CHUNKS = 64
_UNKNOWN_TIME = array("d", [math.nan])
# Called with the number of bytes that were read so far; whether to leave out the rest.
OnProgress = Callable[[int], bool | None]


@dataclass(slots=True)
class _Kept:
    """One key: all its points, and those within the selected steps."""

    whole: ThinnedSeries
    part: ThinnedSeries


@dataclass(slots=True)
class FileMetrics:
    """The series of one rank, the lowest that the log names, in the order of the log.

    `oldest_t` and `newest_t`: Unix seconds of its points; None where no line has a time, or none
    was wanted. `left_out_bytes`: what follows in the file and was not read.
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
    left_out_bytes: int = 0

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
    path: Path,
    wanted: Wanted = EVERYTHING,
    on_progress: OnProgress | None = None,
) -> FileMetrics:
    """Read a log up to its size at the time of opening. Points between junk are found.
    `on_progress` may end the reading early.

    Raises:
        UsageError: `LOG_NOT_READABLE`, also for a binary file without points;
            `PATTERN_INVALID`, `PATTERN_TOO_SLOW`, `PATTERN_MATCHES_NOTHING`.
    """
    folded, size = _Folded(wanted), 0
    patterns = taught_patterns(wanted.pattern)
    parser = LogParser(wanted.keys and {*wanted.keys, *folded.aggregates.bases}, patterns)
    left_out_bytes = 0
    for chunk in read_chunks(path):
        for start in range(0, len(chunk), BLOCK_BYTES):  # used while it is in the cache
            folded.take(parser.feed(chunk[start : start + BLOCK_BYTES]))
        size += len(chunk)
        if on_progress is not None and on_progress(size):
            left_out_bytes = max(0, path.stat().st_size - size)
            break
    if not left_out_bytes:
        folded.take(parser.close())
    folded.finish()
    if patterns:
        refuse_without_match(str(path), parser.coverage)
    parser.coverage.samples = [] if folded.ranks else _samples(path)
    folded.understood.finish(parser)
    rank, others = min(folded.ranks, default=None), max(0, len(folded.ranks) - 1)
    times = folded.oldest_t, folded.newest_t
    keys, kept = folded.keys | folded.of_ranks.keys(), folded.kept | folded.of_ranks
    return FileMetrics(
        parser.coverage,
        rank,
        others,
        size,
        wanted,
        *times,
        folded.understood,
        keys,
        kept,
        left_out_bytes,
    )


def _samples(path: Path) -> list[str]:
    """The most frequent lines of a log of which nothing was read, by its beginning, which is
    searched for behind 64 MiB of zeros at most.

    Raises:
        UsageError: `LOG_NOT_READABLE`, it is binary.
    """
    chunks = islice(read_chunks(path), _MOST_EMPTY_CHUNKS)
    begin = next((text for chunk in chunks if (text := chunk.lstrip(b"\0"))), b"")
    refuse_binary(path, begin)
    return frequent_lines(begin)


@dataclass(slots=True)
class _Folded:
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
    _lowest: int | None = None

    def __post_init__(self) -> None:
        self.aggregates = LogAggregates(self.wanted.keys or ())

    def finish(self) -> None:
        """Add the aggregates that are not complete yet."""
        self._add_aggregates(self.aggregates.finish())

    def take(self, parsed: Parsed) -> None:
        """Add the points of some lines."""
        self.understood.take(parsed)
        # Batches come by shape: lines of several shapes alternate within a block.
        for _, of_block in groupby(parsed.batches, key=_block):
            self._take_block(list(of_block))

    def _take_block(self, batches: Sequence[Batch]) -> None:
        ranks = {batch.rank for batch in batches}
        self.ranks |= ranks
        if self._lowest is None or min(ranks) < self._lowest:
            self._lowest = min(ranks)
            self.keys, self.kept, self.oldest_t, self.newest_t = set(), {}, None, None
        self._take_own([batch for batch in batches if batch.rank == self._lowest])
        of_ranks = {base: rows_of(batches, base) for base in self.aggregates.bases}
        if of_ranks:
            self._add_aggregates(self.aggregates.take(of_ranks))

    def _take_own(self, batches: Sequence[Batch]) -> None:
        self.keys.update(key for batch in batches for key in batch.keys)
        times = times_of(batches, self.wanted)
        finite_times = [t for of_batch in times if of_batch for t in of_batch if not math.isnan(t)]
        if finite_times:
            oldest, newest = min(finite_times), max(finite_times)
            self.oldest_t = oldest if self.oldest_t is None else min(self.oldest_t, oldest)
            self.newest_t = newest if self.newest_t is None else max(self.newest_t, newest)
        for column in columns_of(batches, times, self.wanted):
            self._extend(self.kept, column)

    def _add_aggregates(self, points: Mapping[str, tuple[list[int], list[float]]]) -> None:
        for key, (steps, values) in points.items():
            column = Column(key, array("q", steps), None, array("d", values), falls_in(steps))
            self._extend(self.of_ranks, column)

    def _extend(self, among: dict[str, _Kept], column: Column) -> None:
        kept = among.get(column.key)
        if kept is None:
            most = most_points(MAX_KEYS if self.wanted.keys is None else len(self.wanted.keys))
            kept = among[column.key] = _Kept(ThinnedSeries(most), ThinnedSeries(most))
        times = _UNKNOWN_TIME * len(column.steps) if column.times is None else column.times
        kept.whole.add(column.steps, times, column.values, column.falls)
        if self.wanted.has_range:
            chosen = [i for i, step in enumerate(column.steps) if self.wanted.within(step)]
            kept.part.add(
                array("q", [column.steps[i] for i in chosen]),
                array("d", [times[i] for i in chosen]),
                array("d", [column.values[i] for i in chosen]),
            )


def _block(batch: Batch) -> int:
    return id(batch.block)


@dataclass(frozen=True, slots=True)
class Column:
    """A key's points in one block, in the order of their lines. `times`: None where none is known.
    `falls`: how often a step is lower than the one before."""

    key: str
    steps: array[int]
    times: array[float] | None
    values: array[float]
    falls: int


@dataclass(frozen=True, slots=True)
class _Values:
    """One key's values in a batch, with the times of its rows."""

    batch: Batch
    times: array[float] | None
    values: Sequence[float]


def times_of(batches: Sequence[Batch], wanted: Wanted) -> list[array[float] | None]:
    """The times of each batch's rows, NaN where unknown; None where they are not wanted."""
    return [_times(batch) if wanted.times else None for batch in batches]


def columns_of(
    batches: Sequence[Batch], times: Sequence[array[float] | None], wanted: Wanted
) -> list[Column]:
    """The columns of one block's batches, which are of one rank."""
    by_key: dict[str, list[_Values]] = {}
    for batch, of_batch in zip(batches, times, strict=True):
        for key, values in zip(batch.keys, batch.columns, strict=True):
            if wanted.keys is None or key in wanted.keys:
                by_key.setdefault(key, []).append(_Values(batch, of_batch, values))
    made = [_column(key, parts) for key, parts in by_key.items()]
    return [column for column in made if column.steps]


def _times(batch: Batch) -> array[float]:
    times = [batch.time_of(row) for row in range(len(batch.steps))]
    return array("d", [math.nan if t is None else t for t in times])


def _column(key: str, parts: Sequence[_Values]) -> Column:
    steps: Sequence[float] = parts[0].batch.steps
    values: Sequence[float] = parts[0].values
    times: Sequence[float] | None = parts[0].times
    if len(parts) > 1:
        parts, order = _in_one_order(parts)
        steps = _joined(order, [part.batch.steps for part in parts])
        values = _joined(order, [part.values for part in parts])
        if times is not None:
            times = _joined(order, [part.times or () for part in parts])
    never_fall = sorted(steps) == steps
    ends = (steps[0], steps[-1]) if never_fall and steps else steps
    if ends and not (_is_possible(min(ends)) and _is_possible(max(ends))):
        kept = [i for i, step in enumerate(steps) if _is_possible(step)]
        steps, values = ([column[i] for i in kept] for column in (steps, values))
        times = times and [times[i] for i in kept]
    return Column(
        key,
        array("q", map(int, steps)),
        None if times is None else array("d", times),
        array("d", values),
        0 if never_fall else falls_in(steps),
    )


def _in_one_order(parts: Sequence[_Values]) -> tuple[Sequence[_Values], Sequence[int] | None]:
    """Values of several batches, and the order of all their rows; None: as they follow."""
    by_line = sorted(parts, key=lambda part: part.batch.lines[0])
    if all(above.batch.lines[-1] < below.batch.lines[0] for above, below in pairwise(by_line)):
        return by_line, None
    lines = list(chain.from_iterable(part.batch.lines for part in parts))
    return parts, sorted(range(len(lines)), key=lines.__getitem__)


def _joined(order: Sequence[int] | None, columns: Sequence[Sequence[float]]) -> list[float]:
    values = list(chain.from_iterable(columns))
    return values if order is None else list(map(values.__getitem__, order))


def _is_possible(step: float) -> bool:
    return abs(step) < _FARTHEST_STEP
