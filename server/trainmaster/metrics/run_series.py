"""Joins the series of a run's attempts: one value per step, that of the newest attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainer_runtime.core.protocol.lineage import Lineage
from trainmaster.metrics.selection import moving_average
from trainmaster.metrics.series_sql import extent, first_since, point_from, point_until
from trainmaster.store.buckets import Bucket, Row, cut_buckets, cut_rows, joined, of_rows
from trainmaster.store.metrics_rows import Series
from trainmaster.store.metrics_store import MetricsStore
from trainmaster.store.rollup import LEVELS, cover
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

_FARTHEST = 2**53
# With more pieces, searching for overlaps costs more than reading all points.
_MOST_PIECES = 200
# Blocks are joined where each bucket gets at least this many: bucket sizes differ little then.
_BLOCKS_A_BUCKET = 2


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of one stored series that is not superseded, from `first` to `last` inclusive."""

    sid: int
    first: int
    last: int

    def between(self, first: int, last: int) -> Piece:
        return Piece(self.sid, max(self.first, first), min(self.last, last))


class RunSeries:
    """One key of a run as one series that rises in x.

    `stretches` follow each other in x. A stretch of one piece is read through its sums; in one of
    several (newest last) the newest piece supplies the value of each x.
    """

    def __init__(self, store: MetricsStore, stretches: Sequence[Sequence[Piece]]) -> None:
        self._store = store
        self._stretches = stretches

    def between(self, first: int | None, last: int | None) -> RunSeries:
        """The points from `first` to `last`, both included; None: no bound."""
        low = -_FARTHEST if first is None else first
        high = _FARTHEST if last is None else last
        cut = [[piece.between(low, high) for piece in stretch] for stretch in self._stretches]
        kept = [[piece for piece in stretch if piece.first <= piece.last] for stretch in cut]
        return RunSeries(self._store, [stretch for stretch in kept if stretch])

    def since(self, t: float) -> RunSeries:
        """The points from the first one that was measured at or after `t`."""
        first = self.first_x_since(t)
        return RunSeries(self._store, []) if first is None else self.between(first, None)

    def first_x_since(self, t: float) -> int | None:
        for stretch in self._stretches:
            for piece in reversed(stretch):
                x = first_since(self._store, piece.sid, t)
                if x is not None and x <= piece.last:
                    return max(x, piece.first)
        return None

    def rows(self) -> list[Row]:
        return [row for stretch in self._stretches for row in self._read(stretch)]

    def every(self) -> list[Bucket]:
        return [of_rows([row]) for row in self.rows()]

    def averaged(self, weight: float) -> list[Row]:
        return moving_average(self.rows(), weight)

    def whole(self) -> Bucket | None:
        """All points as one bucket; None where there are none."""
        buckets = self._cover(LEVELS[-1])
        return joined(buckets) if buckets else None

    def cut(self, most: int) -> list[Bucket]:
        """At most `most` buckets of about as many points each."""
        coarse = self._cover(LEVELS[-1])
        n = sum(bucket.n for bucket in coarse)
        fits = [level for level in LEVELS if level * _BLOCKS_A_BUCKET * most <= n]
        if not fits:
            return cut_rows(self.rows(), most)
        buckets = coarse if fits[-1] == LEVELS[-1] else self._cover(fits[-1])
        return cut_buckets(buckets, most)

    def first(self) -> Row | None:
        return self.from_(-_FARTHEST)

    def until(self, x: int) -> Row | None:
        """The newest point at or before `x`."""
        for stretch in reversed(self._stretches):
            rows = [
                row
                for piece in stretch
                if piece.first <= x
                and (row := point_until(self._store, piece.sid, min(x, piece.last)))
                and row[0] >= piece.first
            ]
            if rows:
                newest = max(row[0] for row in rows)
                return [row for row in rows if row[0] == newest][-1]
        return None

    def from_(self, x: int) -> Row | None:
        """The oldest point at or after `x`."""
        for stretch in self._stretches:
            rows = [
                row
                for piece in stretch
                if piece.last >= x
                and (row := point_from(self._store, piece.sid, max(x, piece.first)))
                and row[0] <= piece.last
            ]
            if rows:
                oldest = min(row[0] for row in rows)
                return [row for row in rows if row[0] == oldest][-1]
        return None

    def _read(self, stretch: Sequence[Piece]) -> list[Row]:
        if len(stretch) == 1:
            (piece,) = stretch
            return self._store.points(piece.sid, piece.last, piece.first)
        by_x: dict[int, Row] = {}
        for piece in stretch:
            for row in self._store.points(piece.sid, piece.last, piece.first):
                by_x[row[0]] = row
        return [by_x[x] for x in sorted(by_x)]

    def _cover(self, coarsest: int) -> list[Bucket]:
        buckets: list[Bucket] = []
        for stretch in self._stretches:
            if len(stretch) == 1:
                (piece,) = stretch
                buckets += cover(
                    self._store.connection, piece.sid, piece.first, piece.last, coarsest
                )
            else:
                buckets += [of_rows([row]) for row in self._read(stretch)]
        return buckets


def run_series(workspace: Workspace, view: RunView, key: str) -> RunSeries:
    """One key of a run without superseded points."""
    return live_series(workspace.metrics, view.run.run_id, view.run.placement, key, view.lineage)


def live_series(
    store: MetricsStore, run_id: str, placement: int, key: str, lineage: Lineage
) -> RunSeries:
    """The same of a run with this lineage."""
    pieces = []
    for series in store.series(run_id, key):
        ends = extent(store, series.sid) if series.placement == placement else None
        if ends is not None:
            last = min(ends[1], _live_until(series, lineage))
            if ends[0] <= last:
                pieces.append(Piece(series.sid, ends[0], int(last)))
    return RunSeries(store, _stretches(pieces))


def run_points(workspace: Workspace, view: RunView, key: str) -> list[tuple[int, float]]:
    """(x, value) of one key, rising in x, without superseded points."""
    return [(x, value) for x, _, value in run_series(workspace, view, key).rows()]


def attempt_points(workspace: Workspace, run: str, key: str) -> dict[int, dict[int, float]]:
    """The values of each attempt, superseded or not: attempt to step to value.

    Raises:
        StateError: `RUN_NOT_FOUND`.
    """
    run_record = workspace.control.run(run)
    values: dict[int, dict[int, float]] = {}
    for piece in workspace.metrics.series(run_record.run_id, key):
        if piece.placement == run_record.placement:
            points = workspace.metrics.points(piece.sid)
            values.setdefault(piece.attempt, {}).update({x: value for x, _, value in points})
    return values


def _live_until(series: Series, lineage: Lineage) -> float:
    # Attempt 0 is telemetry, which is never superseded.
    return lineage.live_until(series.attempt) if series.attempt else float("inf")


def _stretches(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """The pieces, oldest first, cut where others begin and end."""
    if len(pieces) > _MOST_PIECES:
        return [list(pieces)]
    edges = sorted({edge for piece in pieces for edge in (piece.first, piece.last + 1)})
    stretches: list[list[Piece]] = []
    for first, after in pairwise(edges):
        over = [
            piece.between(first, after - 1)
            for piece in pieces
            if piece.first <= first and piece.last >= after - 1
        ]
        if over:
            stretches.append(over)
    return stretches
