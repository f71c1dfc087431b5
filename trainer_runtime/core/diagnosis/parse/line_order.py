"""Rows of several kinds, whose lines alternate, in the order of their lines."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, compress, count, islice, pairwise, repeat
from math import isnan
from operator import eq, le
from typing import NamedTuple

from trainer_runtime.core.diagnosis.parse.columns import TokenColumn, is_text
from trainer_runtime.core.diagnosis.parse.quantities import same
from trainer_runtime.core.diagnosis.parse.rows import Rows

_FEW = 8  # rows are few beside so many times as many others


class Track(NamedTuple):
    """Rows of one kind, numbered `kept`, in order, with a line and a step each."""

    rows: Rows
    kept: Sequence[int]
    lines: Sequence[float]
    steps: Sequence[float]


class Order:
    """The steps of some tracks in the order of their lines, of which no two are the same."""

    def __init__(self, tracks: Sequence[Track]) -> None:
        self._tracks = tracks
        self._merged: tuple[Sequence[float], Sequence[float]] | None = None
        # The tracks in order, where each ends before the next begins.
        by_line = sorted(tracks, key=lambda track: track.lines[0])
        ends = pairwise(by_line)
        self._apart = by_line if all(a.lines[-1] < b.lines[0] for a, b in ends) else []

    def merged(self) -> tuple[Sequence[float], Sequence[float]]:
        """All lines, in order, and their steps."""
        if self._merged is None:
            self._merged = self._merge()
        return self._merged

    def _merge(self) -> tuple[Sequence[float], Sequence[float]]:
        if len(self._tracks) == 1:
            return self._tracks[0].lines, self._tracks[0].steps
        tracks = self._apart or self._tracks
        lines = chain.from_iterable(track.lines for track in tracks)
        steps = chain.from_iterable(track.steps for track in tracks)
        if self._apart:
            return list(lines), list(steps)
        step_at = dict(zip(lines, steps, strict=True))
        ordered = sorted(step_at)
        return ordered, list(map(step_at.__getitem__, ordered))

    def not_above(self, last: float, *, distinct: bool) -> list[int]:
        """Where in `merged` the step is not above the one before it, of the first `last`. Where
        rows are `distinct`, the same step in different tracks does not matter."""
        if distinct and self._rises(last):
            return []
        lines, steps = self.merged()
        found = [0] if lines and steps[0] <= last else []
        if self._apart and all(track.rows.increasing for track in self._apart):
            begins = accumulate(len(track.lines) for track in self._apart[:-1])
            return found + [at for at in begins if steps[at] <= steps[at - 1]]
        if len(self._tracks) > 1 or not self._tracks[0].rows.increasing:
            found += compress(count(1), map(le, islice(steps, 1, None), steps))
        return found

    def before(self, lines: Sequence[float], first: float) -> list[float]:
        """The steps of the last rows above some lines; `first` where there is none."""
        if not self._tracks:
            return [first] * len(lines)
        searches = len(lines) * len(self._tracks)
        if self._merged is None and searches * 2 < sum(len(track.lines) for track in self._tracks):
            return [self._before(line, first) for line in lines]
        ordered, steps = self.merged()
        return list(map([first, *steps].__getitem__, map(partial(bisect_left, ordered), lines)))

    def _before(self, line: float, first: float) -> float:
        found = (-1.0, first)
        for track in self._tracks:
            at = bisect_left(track.lines, line)
            if at and track.lines[at - 1] > found[0]:
                found = track.lines[at - 1], track.steps[at - 1]
        return found[1]

    def _rises(self, last: float) -> bool:
        """Whether steps are known never to fall, without merging a long track with short ones."""
        largest = max(self._tracks, key=lambda track: len(track.lines))
        others = [track for track in self._tracks if track is not largest]
        few = sum(len(track.lines) for track in others) * _FEW < len(largest.lines)
        if not few or not all(track.rows.increasing for track in self._tracks):
            return False
        if not min(track.steps[0] for track in self._tracks) > last:
            return False
        lines, steps, at = largest.lines, largest.steps, 0
        for line, step in sorted(
            pair for track in others for pair in zip(track.lines, track.steps, strict=True)
        ):
            at = bisect_left(lines, line, at)
            last = max(last, steps[at - 1]) if at else last
            if not last <= step or (at < len(steps) and not step <= steps[at]):
                return False
            last = step
        return True


class Neighbours:
    """Rows of several kinds by their places in the order of their lines."""

    def __init__(self, kinds: Sequence[Rows]) -> None:
        self._kinds = kinds
        self._lines: Sequence[float] | None = None
        self._row_at: dict[float, tuple[Rows, int]] = {}  # of several kinds

    @property
    def lines(self) -> Sequence[float]:
        """The lines of all rows, in order."""
        if self._lines is None:
            if len(self._kinds) == 1:
                self._lines = self._kinds[0].places
                return self._lines
            for rows in self._kinds:
                self._row_at.update(zip(rows.places, zip(repeat(rows), count()), strict=False))
            self._lines = sorted(self._row_at)
        return self._lines

    def at(self, place: int) -> tuple[Rows, int]:
        """The row at a place: its kind, and its number among the rows of that kind."""
        lines = self._lines or self.lines
        return self._row_at[lines[place]] if self._row_at else (self._kinds[0], place)

    def first(self) -> float:
        """The first line of all."""
        return min((rows.places[0] for rows in self._kinds), default=-1.0)

    def place(self, line: float) -> int:
        return bisect_left(self.lines, line)

    def below_alike(self, among: Collection[float], kinds: Mapping[Rows, object]) -> set[float]:
        """Of the lines of some rows, those below a row of the same kind, and the first of all."""
        if len(self._kinds) == 1:
            return set(among)
        total = sum(len(rows.places) for rows in self._kinds)
        if self._lines is None and len(among) * len(self._kinds) * 2 < total:
            return {line for line in among if self._is_below_alike(line, kinds)}
        lines = self.lines
        numbers = {kind: number for number, kind in enumerate(kinds.values())}
        number_of = {rows: numbers[kind] for rows, kind in kinds.items()}
        found = [number_of[rows] for rows, _ in map(self._row_at.__getitem__, lines)]
        alike = compress(islice(lines, 1, None), map(eq, islice(found, 1, None), found))
        return {lines[0], *alike}.intersection(among)

    def _is_below_alike(self, line: float, kinds: Mapping[Rows, object]) -> bool:
        own: object = None
        above: tuple[float, object] = -1.0, None
        for rows in self._kinds:
            places = rows.places
            at = bisect_left(places, line)
            if at < len(places) and places[at] == line:
                own = kinds[rows]
            if at and places[at - 1] > above[0]:
                above = places[at - 1], kinds[rows]
        return above[1] in (own, None)

    def pairs(self) -> Iterator[tuple[int, Rows, Rows]]:
        """Each place but the first, with the kind of the row above it and its own."""
        lines = self.lines
        if not self._row_at:
            return zip(
                range(1, len(lines)), repeat(self._kinds[0]), repeat(self._kinds[0]), strict=False
            )
        kinds = [rows for rows, _ in map(self._row_at.__getitem__, lines)]
        return zip(range(1, len(lines)), kinds, kinds[1:], strict=False)


def equal_to_previous(columns: Sequence[Sequence[float]], rows: Sequence[int]) -> list[int]:
    """Of `rows`, in order, those whose values are all those of the row before, where NaN equals
    NaN."""
    first, *others = sorted(columns, key=is_text)
    if len(rows) == len(first) - 1 and not is_text(first) and not isnan(sum(first)):
        rows = list(compress(count(1), map(eq, islice(first, 1, None), first)))
    for column in (first, *others):
        if not rows:
            break
        if isinstance(column, TokenColumn):
            rows = column.equal_to_previous(rows)
        else:
            rows = [i for i in rows if same(column[i], column[i - 1])]
    return list(rows)
