"""The steps of lines that contain none, as HF prints them: from a bar, the epoch, or the count."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from itertools import chain

from trainer_runtime.core.diagnosis.parse.line_order import Neighbours, Track, equal_to_previous
from trainer_runtime.core.diagnosis.parse.points import StepFrom
from trainer_runtime.core.diagnosis.parse.rank_state import Comparison, Rank, may_repeat, repeats
from trainer_runtime.core.diagnosis.parse.rows import Rows

# By these facts steps are inferred, too.
LOGGED_FACTS = frozenset(("steps_per_epoch", "examples", "batch_samples", "epochs", "total_steps"))
_TOTAL = "bar_total"
# How many steps an epoch has, by the first line with a bar and an epoch of many digits; 0: unknown.
_EXACT = "exact_steps_per_epoch"
# 1: the first line stands below a bar that is complete, so that lines were written after all bars.
_LATE = "printed_after_the_bars"
# 1: the steps of the header and the first line's epoch make a whole step; 0: they don't.
_HEADED = "epochs_as_in_the_header"
_EVERY = 5  # what intervals of logging are multiples of
_PRINTED = 100  # parts of an epoch that differ where it is printed with two digits
_MOST_STEPS_LATE = 64  # that a bar, which is not drawn at each step, may be behind
_ACCURACY = 1e-9
_LARGEST = 2.0**53

# The step and the total of the progress bar next to a line; None without one.
Bar = tuple[int, int] | None
BarsOf = Callable[[Sequence[int]], Sequence[Bar]]


class LoggedSteps:
    """Finds the steps of rows one after another. `last` is the newest step of their clock, `step`
    of any."""

    def __init__(self, facts: dict[str, float], last: float, step: float) -> None:
        self._facts = facts
        self._per_epoch = _steps_per_epoch(facts)
        self._last, self._step = last, step
        self.counted = False  # whether a step was inferred from those before it
        self.counted_losses = False  # not only of an evaluation or a summary, which has none

    def note(self, step: float) -> None:
        """A row in between has a step of its own."""
        self._last = self._step = step

    def step_of(self, rows: Rows, i: int, bar: Bar) -> float:
        """The step of the bar next to the line, else from the epoch, else the count of logs."""
        self._last = self._step = self._found(rows, i, bar)
        return self._step

    def _found(self, rows: Rows, i: int, bar: Bar) -> float:
        trains = "loss" in rows.keys
        epoch = rows.columns[rows.keys.index("epoch")][i] if "epoch" in rows.keys else None
        if trains and bar is not None and epoch is not None:
            _note_exact(self._facts, bar, epoch)
        exact = self._facts.get(_EXACT)
        if exact and epoch is not None and _is_whole(epoch * exact):
            return float(round(epoch * exact))
        if (
            bar is not None
            and not self._facts.get(_LATE)
            and self._facts.get(_TOTAL, bar[1]) == bar[1]
        ):
            if trains:
                self._facts[_TOTAL] = float(bar[1])
            return float(bar[0])
        if self._per_epoch and epoch is not None:
            step = epoch * self._per_epoch
            if 0 <= step < _LARGEST:
                return float(round(step))
        if epoch is not None and (headed := _headed(self._facts, epoch)) is not None:
            return headed
        self.counted = True
        self.counted_losses = self.counted_losses or trains
        return self._last + 1.0 if trains else self._step


def _headed(facts: dict[str, float], epoch: float) -> float | None:
    """The step by the header's numbers of epochs and of all steps; None where they don't make whole
    steps. The log's first line decides. An epoch of two digits can mean several steps of a long
    epoch: the one that is a multiple of a usual interval counts."""
    total, epochs = facts.get("total_steps", 0.0), facts.get("epochs", 0.0)
    if not epochs or not total or not facts.get(_HEADED, 1.0):
        return None
    step, per_epoch = epoch * total / epochs, total / epochs
    is_certain = per_epoch <= _PRINTED or round(step) % _EVERY == 0
    if _HEADED not in facts:
        facts[_HEADED] = float(_is_whole(per_epoch) and _is_whole(step) and is_certain)
    return float(round(step)) if facts[_HEADED] and 0 <= step < _LARGEST else None


def _note_exact(facts: dict[str, float], bar: tuple[int, int], epoch: float) -> None:
    """Learn from the log's first line with a loss how many steps an epoch has. A bar is drawn only
    now and then, so that the step may be a few higher: it makes whole numbers of the steps of an
    epoch and of the epochs."""
    if _EXACT in facts:
        return
    at, total = bar
    facts[_EXACT] = facts[_LATE] = 0.0
    if at == total and total > 1 and not _is_whole(epoch):
        facts[_LATE] = 1.0
        return
    for step in range(max(at, 1), min(at + _MOST_STEPS_LATE, total) + 1):
        per_epoch = step / epoch if epoch > 0 else 0.0
        if per_epoch >= 1 and _is_whole(per_epoch) and _is_whole(total / round(per_epoch)):
            facts[_EXACT] = float(round(per_epoch))
            return


def _is_whole(value: float) -> bool:
    return abs(value - round(value)) <= _ACCURACY * max(1.0, value)


def logged_at_once(
    rank: Rank,
    kinds: Sequence[Rows],
    others: Sequence[Track],
    facts: dict[str, float],
    bars_of: BarsOf | None,
) -> list[Track] | None:
    """The rows of a rank that were logged without a step, with their steps, except those that
    repeat another; None where the steps depend on those of another clock.

    `kinds`: all rows of the rank with values in a block; `others`: those with a step.
    """
    repeated = _repeated(rank, kinds)
    tracks = [
        _without(rows, repeated.get(rows, ())) for rows in kinds if rows.like.source is StepFrom.LOG
    ]
    tracks = [track for track in tracks if track.lines]
    if not tracks:
        return []
    bars = [bars_of(list(map(int, track.lines))) if bars_of else () for track in tracks]
    if facts.get(_EXACT, float(any(map(any, bars)))) or facts.get(_LATE) or facts.get("epochs"):
        steps = None  # by their epochs, which each row decides
    elif any(map(any, bars)):
        steps = _from_bars(tracks, bars, facts)
    elif _steps_per_epoch(facts):
        steps = _from_epochs(tracks, facts)
    else:
        steps = None if others else _from_count(tracks, rank)
        if steps:
            _note_counted(tracks)
    if steps is None:
        steps = _one_by_one(tracks, others, bars, rank, facts)
    if steps is None:
        return None
    return [track._replace(steps=found) for track, found in zip(tracks, steps, strict=True)]


def _note_counted(tracks: Sequence[Track]) -> None:
    for track in tracks:
        track.rows.counted = track.rows.counted or "loss" in track.rows.keys


def _without(rows: Rows, repeated: Collection[int]) -> Track:
    if not repeated:
        return Track(rows, range(len(rows.places)), rows.places, ())
    kept = [i for i in range(len(rows.places)) if i not in repeated]
    return Track(rows, kept, [rows.places[i] for i in kept], ())


def _repeated(rank: Rank, kinds: Sequence[Rows]) -> dict[Rows, set[int]]:
    """The rows that repeat the one before them."""
    neighbours = Neighbours(kinds)
    at, count = neighbours.at, len(neighbours.lines)
    compared: dict[tuple[Rows, Rows], Comparison] = {}
    gone: set[int] = set()
    found: dict[Rows, set[int]] = defaultdict(set)
    for first in _alike(neighbours, kinds):
        place = first
        while place < count and place not in gone:
            rows, i = at(place)
            if rows.like.source is not StepFrom.LOG:
                break
            above = place - 1
            while above in gone:
                above -= 1
            if above < 0:
                is_same = repeats(rank.last_row(), rows, i, None)
            else:
                other, k = at(above)
                comparison = compared.get((other, rows))
                if comparison is None:
                    comparison = compared[other, rows] = Comparison.of(other, rows)
                is_same = comparison.are_same(k, i)
            if not is_same:
                break
            gone.add(place)
            found[rows].add(i)
            place += 1  # which has another row above it now
    return found


def _alike(neighbours: Neighbours, kinds: Sequence[Rows]) -> list[int]:
    """The places of rows that may repeat the one above them, in order."""
    if len(kinds) == 1:
        columns = kinds[0].columns
        return [0, *equal_to_previous(columns, range(1, len(columns[0])))]
    found = [0]
    number = dict.fromkeys(kinds, 0)  # of the next row of each kind
    number[neighbours.at(0)[0]] = 1
    below_own: dict[Rows, dict[int, int]] = defaultdict(dict)  # places by number
    possible: dict[tuple[Rows, Rows], bool] = {}
    for place, above, rows in neighbours.pairs():
        i = number[rows]
        number[rows] = i + 1
        if rows is above:
            below_own[rows][i] = place
            continue
        pair = above, rows
        if pair not in possible:
            possible[pair] = rows.like.source is StepFrom.LOG and may_repeat(above, rows)
        if possible[pair]:
            found.append(place)
    for rows, places in below_own.items():
        if rows.like.source is StepFrom.LOG:
            found += [places[i] for i in equal_to_previous(rows.columns, list(places))]
    return sorted(found)


def _from_bars(
    tracks: Sequence[Track], bars: Sequence[Sequence[Bar]], facts: dict[str, float]
) -> list[list[float]] | None:
    """The steps of the bars, if every row has one and all have the same total."""
    totals = {bar and bar[1] for found in bars for bar in found}
    total = totals.pop()
    if total is None or totals or facts.get(_TOTAL, total) != total:
        return None
    if any("loss" in track.rows.keys for track in tracks):
        facts[_TOTAL] = float(total)
    return [[float(bar[0]) for bar in found if bar is not None] for found in bars]


def _from_epochs(tracks: Sequence[Track], facts: dict[str, float]) -> list[list[float]] | None:
    per_epoch = _steps_per_epoch(facts) or 1.0
    found = []
    for rows, kept, _, _ in tracks:
        if "epoch" not in rows.keys:
            return None
        column = rows.columns[rows.keys.index("epoch")]
        values = list(column)
        steps = [values[i] * per_epoch for i in kept]
        if not all(0 <= step < _LARGEST for step in steps):
            return None
        found.append([float(round(step)) for step in steps])
    return found


def _from_count(tracks: Sequence[Track], rank: Rank) -> list[list[float]] | None:
    """The number of rows with a loss so far, if no other rows come between them."""
    clock, last = tracks[0].rows.like.clock, rank.step
    if rank.steps.get(clock, last) != last or any(t.rows.like.clock != clock for t in tracks):
        return None
    counted = [track.lines for track in tracks if "loss" in track.rows.keys]
    lines = counted[0] if len(counted) == 1 else sorted(chain.from_iterable(counted))
    return [
        [last + count for count in range(1, len(lines) + 1)]
        if track.lines is lines
        else [last + bisect_right(lines, line) for line in track.lines]
        for track in tracks
    ]


def _one_by_one(
    tracks: Sequence[Track],
    others: Sequence[Track],
    bars: Sequence[Sequence[Bar]],
    rank: Rank,
    facts: dict[str, float],
) -> list[list[float]] | None:
    """The steps in the order of the lines; None if they are counted and there are other clocks."""
    everything = [*tracks, *others]
    clock, facts_then = tracks[0].rows.like.clock, dict(facts)
    logged = LoggedSteps(facts_then, rank.steps.get(clock, rank.step), rank.step)
    steps: list[list[float]] = [[] for _ in tracks]
    for _, number, k in sorted(
        (line, number, k)
        for number, track in enumerate(everything)
        for k, line in enumerate(track.lines)
    ):
        track = everything[number]
        if number >= len(tracks):
            logged.note(track.steps[k])
        else:
            bar = bars[number][k] if bars[number] else None
            steps[number].append(logged.step_of(track.rows, track.kept[k], bar))
    if logged.counted and any(track.rows.like.clock != clock for track in everything):
        return None
    facts.update(facts_then)
    if logged.counted_losses:
        _note_counted(tracks)
    return steps


def _steps_per_epoch(facts: dict[str, float]) -> float | None:
    if "steps_per_epoch" in facts:
        return facts["steps_per_epoch"]
    if "examples" in facts and facts.get("batch_samples"):
        return float(math.ceil(facts["examples"] / facts["batch_samples"]))
    return None
