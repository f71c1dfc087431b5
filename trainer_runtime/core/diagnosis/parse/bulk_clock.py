"""Assigns steps and segments to all rows of a rank in a block at once.

Row by row, as `clock.py` also can, each row is compared with the ones before it. Here the rows of
each kind stay together: where a step falls is searched in all of them at once, and only those few
rows are treated one by one that may begin a segment or repeat the row above.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from itertools import chain, compress, count, islice
from operator import eq

from trainer_runtime.core.diagnosis.parse.line_order import (
    Neighbours,
    Order,
    Track,
    equal_to_previous,
)
from trainer_runtime.core.diagnosis.parse.logged_steps import BarsOf, logged_at_once
from trainer_runtime.core.diagnosis.parse.points import StepFrom
from trainer_runtime.core.diagnosis.parse.rank_state import (
    LastRow,
    Rank,
    last_row_of,
    repeats,
    step_of_micro,
)
from trainer_runtime.core.diagnosis.parse.rows import Rows
from trainer_runtime.core.records import dataclass

Kind = tuple[str, frozenset[str]]
_BESIDE = (StepFrom.LAST, StepFrom.MICRO)  # rows that belong to the step above them


def settled_at_once(
    rank: Rank, all_rows: Sequence[Rows], facts: dict[str, float], bars_of: BarsOf | None
) -> bool:
    """Accept the rows, except repeats, and assign segment and step to each. Returns whether that
    was done; where it was not, nothing has changed."""
    keyed = [rows for rows in all_rows if rows.keys]
    at_steps = [rows for rows in all_rows if _has_own_steps(rows)]
    if any(rows.steps is None for rows in at_steps):
        return False
    tracks = [_whole(rows) for rows in at_steps]
    if any(rows.like.source is StepFrom.LOG for rows in keyed):
        logged = logged_at_once(rank, keyed, tracks, facts, bars_of)
        if logged is None:
            return False
        tracks += logged
    settling = _Settling(
        rank,
        keyed,
        tracks,
        Order(tracks),
        Neighbours(keyed),
        {track.rows: track for track in tracks},
    )
    settling.settle()
    for rows in all_rows:
        if rows.like.events:
            rows.event_steps = settling.steps_of_events(rows)
    settling.finish()
    return True


def _whole(rows: Rows) -> Track:
    return Track(rows, range(len(rows.places)), rows.places, rows.steps or ())


def _has_own_steps(rows: Rows) -> bool:
    if rows.keys:
        return rows.like.source is StepFrom.LINE
    return rows.steps is not None and not rows.like.events


@dataclass(slots=True, eq=False)
class _Settling:
    """The rows of a rank in a block. `tracks`: those with a step, own or inferred."""

    rank: Rank
    keyed: Sequence[Rows]
    tracks: Sequence[Track]
    order: Order
    neighbours: Neighbours
    track_of: Mapping[Rows, Track]
    cuts: list[float] = field(default_factory=list)  # the lines at which segments begin
    repeated: dict[Rows, set[int]] = field(default_factory=lambda: defaultdict(set))
    beside: dict[Rows, list[float]] = field(default_factory=dict)  # steps of rows without any
    kinds: dict[Rows, Kind] = field(default_factory=dict)

    def settle(self) -> None:
        self.kinds = {rows: _kind(rows) for rows in self.keyed}
        if self.tracks:
            self._find_cuts()
        for track in self.tracks:
            if track.rows.keys:
                self._accept(track)
        beside = [rows for rows in self.keyed if rows.like.source in _BESIDE]
        for rows in beside:
            self.beside[rows] = self._steps_beside(rows)
        if beside:
            self._find_repeats_beside(beside)
        for rows in beside:
            track = Track(rows, range(len(rows.places)), rows.places, self.beside[rows])
            self._accept(track)

    def steps_of_events(self, rows: Rows) -> Sequence[float]:
        return rows.steps or self.order.before(rows.places, self.rank.step)

    def finish(self) -> None:
        """Note what the rows of the next block are compared with."""
        rank = self.rank
        newest = self._newest()
        rank.segment += len(self.cuts)
        if self.cuts:
            rank.steps.clear()
        for track in sorted(self.tracks, key=_last_line):
            clock, rows = track.rows.like.clock, track.rows
            if rows.micros is not None:
                rank.micro[clock] = (track.steps[-1], rows.micros[-1])
            rank.step = track.steps[-1]
            if not self.cuts or track.lines[-1] >= self.cuts[-1]:
                rank.steps[clock] = rank.step
        if newest is not None:
            rank.newest = newest

    def _newest(self) -> tuple[Rows, int, float] | None:
        """The last row with values, its number and its step."""
        ends = [(track.lines[-1], n) for n, track in enumerate(self.tracks) if track.rows.keys]
        ends += [(rows.places[-1], n - len(self.beside)) for n, rows in enumerate(self.beside)]
        if not ends:
            return None
        _, number = max(ends)
        if number < 0:
            rows = list(self.beside)[number]
            return rows, len(rows.places) - 1, self.beside[rows][-1]
        rows, kept, _, steps = self.tracks[number]
        return rows, kept[-1], steps[-1]

    def _accept(self, track: Track) -> None:
        rows, kept, lines, steps = track
        inferred = rows.like.source is not StepFrom.LINE
        repeated = self.repeated.get(rows)
        if repeated:
            chosen = [k for k, i in enumerate(kept) if i not in repeated]
            kept, lines = [kept[k] for k in chosen], [lines[k] for k in chosen]
            steps = [steps[k] for k in chosen] if inferred else steps
        rows.accept_all(kept, self._segments(lines), list(steps) if inferred else None)

    def _segments(self, lines: Sequence[float]) -> list[int]:
        """The segments of lines, in order."""
        segment, cuts = self.rank.segment, self.cuts
        if len(cuts) * 2 > len(lines):
            return [segment + bisect_right(cuts, line) for line in lines]
        found: list[int] = []
        for cut in cuts:
            found += [segment] * (bisect_left(lines, cut) - len(found))
            segment += 1
        found += [segment] * (len(lines) - len(found))
        return found

    def _find_cuts(self) -> None:
        """Find the lines at which steps fall, and the rows that repeat the one above."""
        distinct = len(set(self.kinds.values())) == len(self.keyed)
        by_clock: dict[str, list[Track]] = defaultdict(list)
        for track in self.tracks:
            by_clock[track.rows.like.clock].append(track)
        if len(by_clock) > 1:
            self._find_cuts_of_clocks(by_clock, distinct)
            return
        last = self.rank.steps.get(self.tracks[0].rows.like.clock, -1.0)
        places = self.order.not_above(last, distinct=distinct)
        if not places:
            return
        lines, steps = self.order.merged()
        if places[0] == 0:
            del places[0]
            if steps[0] != self.rank.step or not self._drop_if_repeated(lines[0]):
                self.cuts += [lines[0]] * (steps[0] < last)
        self.cuts += [lines[at] for at in places if steps[at] < steps[at - 1]]
        equal = [(lines[at], lines[at - 1]) for at in places if steps[at] == steps[at - 1]]
        self._drop_repeated(self._may_repeat(equal))

    def _find_cuts_of_clocks(self, by_clock: Mapping[str, list[Track]], distinct: bool) -> None:
        """The same where lines count by several clocks. All of them begin a segment together."""
        found: list[tuple[float, float, float, float]] = []
        for clock, tracks in by_clock.items():
            order, last = Order(tracks), self.rank.steps.get(clock, -1.0)
            places = order.not_above(last, distinct=distinct)
            if places:
                lines, steps = order.merged()
                found += [
                    (lines[at], lines[at - 1], steps[at], steps[at - 1])
                    if at
                    else (lines[0], -1.0, steps[0], last)
                    for at in places
                ]
        may_repeat = self._may_repeat([(line, above) for line, above, *_ in found])
        cut = -1.0
        for line, above, step, last in sorted(
            one for one in found if one[2] < one[3] or one[0] in may_repeat
        ):
            if above < cut:  # the first of its clock in this segment
                continue
            if line in may_repeat and self._repeats_step(line, step):
                continue
            if step < last:
                self.cuts.append(line)
                cut = line

    def _repeats_step(self, line: float, step: float) -> bool:
        is_newest = step == self.order.before([line], self.rank.step)[0]
        return is_newest and self._drop_if_repeated(line)

    def _may_repeat(self, below: Collection[tuple[float, float]]) -> set[float]:
        """Of lines whose step does not rise, each with the one above, those whose row may repeat
        the row above: it is the block's first, or both may be of one kind."""
        if not below:
            return set()
        lines, pairs = {line for line, _ in below}, set(below)
        times = Counter(self.kinds.values())
        found = {self.neighbours.first()}
        for rows in self.keyed:
            if rows.like.source is not StepFrom.LINE or rows.steps is None:
                continue
            if times[self.kinds[rows]] > 1:
                found.update(rows.places)
            elif not rows.increasing:
                equal = compress(count(1), map(eq, islice(rows.steps, 1, None), rows.steps))
                places = rows.places
                own = [(places[i], places[i - 1]) for i in equal]
                found.update([line for line, _ in pairs.intersection(own)])
        found &= lines
        return self.neighbours.below_alike(found, self.kinds) if found else found

    def _drop_repeated(self, lines: Collection[float]) -> None:
        """Drop the rows on lines that repeat the one above."""
        below_own: dict[Rows, list[int]] = defaultdict(list)
        for line in sorted(lines):
            rows, i = self._own_row_above(line)
            if rows is None:
                self._drop_if_repeated(line)
            else:
                below_own[rows].append(i)
        for rows, found in below_own.items():
            if rows.like.source is StepFrom.LINE and rows.steps is not None:
                alike = [i for i in found if rows.steps[i] == rows.steps[i - 1]]
                self.repeated[rows].update(equal_to_previous(rows.columns, alike))

    def _own_row_above(self, line: float) -> tuple[Rows | None, int]:
        """The rows of a line and its number, if the row above it is one of them."""
        place, lines = self.neighbours.place(line), self.neighbours.lines
        if 0 < place < len(lines) and lines[place] == line:
            rows, i = self.neighbours.at(place)
            if self.neighbours.at(place - 1)[0] is rows:
                return rows, i
        return None, 0

    def _drop_if_repeated(self, line: float) -> bool:
        """Drop the row on a line if it repeats the one above. Returns whether it does."""
        place = self.neighbours.place(line)
        if place == len(self.neighbours.lines) or self.neighbours.lines[place] != line:
            return False
        rows, i = self.neighbours.at(place)
        if rows.like.source is not StepFrom.LINE or rows.steps is None:
            return False
        repeated = repeats(self._above(place, rows), rows, i, rows.steps[i])
        if repeated:
            self.repeated[rows].add(i)
        return repeated

    def _above(self, place: int, like: Rows) -> LastRow | None:
        """The last row above a place, if it is of a kind with `like`."""
        while place:
            place -= 1
            rows, i = self.neighbours.at(place)
            if self.kinds[rows] != self.kinds[like]:
                return None
            if rows.like.source in _BESIDE:
                return last_row_of(rows, i, self._steps_beside(rows)[i])
            track = self.track_of.get(rows)
            at = bisect_left(track.kept, i) if track else 0
            if track and at < len(track.kept) and track.kept[at] == i:
                return last_row_of(rows, i, track.steps[at])
        return self.rank.last_row()

    def _steps_beside(self, rows: Rows) -> list[float]:
        """The steps of rows that belong to the one above."""
        if rows in self.beside:
            return self.beside[rows]
        steps, clock = self.order.before(rows.places, self.rank.step), rows.like.clock
        if rows.like.source is not StepFrom.MICRO or rows.micros is None:
            return steps
        counted = [
            track
            for track in self.tracks
            if track.rows.like.clock == clock and track.rows.micros is not None
        ]
        first = self.rank.micro.get(clock, (0.0, 0.0))
        above = [_micro_above(line, counted, first) for line in rows.places]
        return list(map(step_of_micro, above, rows.micros, steps))

    def _find_repeats_beside(self, beside: Sequence[Rows]) -> None:
        lines = list(chain.from_iterable(rows.places for rows in beside))
        alike = self.neighbours.below_alike(lines, self.kinds)
        for place in sorted(map(self.neighbours.place, alike)):
            rows, i = self.neighbours.at(place)
            if repeats(self._above(place, rows), rows, i, self.beside[rows][i]):
                self.repeated[rows].add(i)


def _micro_above(
    line: float, tracks: Sequence[Track], first: tuple[float, float]
) -> tuple[float, float]:
    """The step and the count of micro-batches in the last row above a line; else `first`."""
    above, found = -1.0, first
    for rows, _, lines, steps in tracks:
        at = bisect_left(lines, line) - 1
        if at >= 0 and lines[at] > above and rows.micros is not None:
            above, found = lines[at], (steps[at], rows.micros[at])
    return found


def _kind(rows: Rows) -> Kind:
    """Rows of another kind can't repeat it."""
    return rows.like.clock, frozenset(rows.keys)


def _last_line(track: Track) -> float:
    return track.lines[-1]
