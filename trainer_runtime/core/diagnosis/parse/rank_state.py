"""What is known of a rank: its segment, its newest steps and its last row."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trainer_runtime.core.diagnosis.parse.columns import as_list, is_text
from trainer_runtime.core.diagnosis.parse.quantities import same
from trainer_runtime.core.diagnosis.parse.rows import Rows

# HF 5.x prints four digits; a line repeats a full one if they differ by at most twice that error.
_ROUNDING = 1e-3
_MIN_COMMON_KEYS = 3
# Beside the newest steps by clock: the epoch that ended last, and the step at which it did.
ENDED, ENDED_AT = "epoch ended", "epochs ended at"


@dataclass(slots=True)
class LastRow:
    """The newest row of a rank."""

    clock: str
    step: float
    rounded: bool
    values: dict[str, float]


@dataclass(slots=True)
class Rank:
    """`steps` are the newest of each clock, `micro` the last step and count of micro-batches."""

    segment: int = 0
    step: float = 0.0
    steps: dict[str, float] = field(default_factory=dict)
    micro: dict[str, tuple[float, float]] = field(default_factory=dict)
    seen: LastRow | None = None
    newest: tuple[Rows, int, float] | None = None  # `seen` is made of it when it is needed

    def last_row(self) -> LastRow | None:
        if self.newest is not None:
            rows, i, step = self.newest
            self.newest, self.seen = None, last_row_of(rows, i, step)
        return self.seen

    def begin_segment(self) -> None:
        self.segment += 1
        self.steps.clear()

    def micro_step(self, clock: str, micros: float) -> float:
        """The step of a count of micro-batches, by the last line with both numbers."""
        return step_of_micro(self.micro.get(clock, (0.0, 0.0)), micros, self.step)

    def to_dict(self) -> dict[str, Any]:
        seen = self.last_row()
        return {
            "segment": self.segment,
            "step": self.step,
            "steps": dict(self.steps),
            "micro": dict(self.micro),
            "seen": None
            if seen is None
            else [seen.clock, seen.step, seen.rounded, _named(seen.values)],
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Rank:
        micro = {name: (step, count) for name, (step, count) in state["micro"].items()}
        rank = cls(state["segment"], state["step"], dict(state["steps"]), micro)
        if state["seen"] is not None:
            name, step, rounded, values = state["seen"]
            floats = {key: float(value) for key, value in values.items()}
            rank.seen = LastRow(name, step, rounded, floats)
        return rank


def step_of_micro(known: tuple[float, float], micros: float, otherwise: float) -> float:
    """The step of a count of micro-batches, where `known` are a step and its count."""
    step, micro = known
    return float(round(micros * step / micro)) if micro and step else otherwise


def last_row_of(rows: Rows, i: int, step: float) -> LastRow:
    values = dict(zip(rows.keys, rows.row(i), strict=True))
    return LastRow(rows.like.clock, step, rows.like.rounded, values)


def repeats(seen: LastRow | None, rows: Rows, i: int, step: float | None) -> bool:
    """Whether the row repeats the last one of its rank, rounded or in full."""
    if seen is None or seen.clock != rows.like.clock or step not in (None, seen.step):
        return False
    if step is not None or seen.rounded == rows.like.rounded:
        return len(seen.values) == len(rows.keys) and all(
            key in seen.values and same(seen.values[key], value)
            for key, value in zip(rows.keys, rows.row(i), strict=True)
        )
    values = dict(zip(rows.keys, rows.row(i), strict=True))
    if not _are_similar(seen.values, values):
        return False
    return all(
        _close(seen.values[key], value) for key, value in values.items() if key in seen.values
    )


class Comparison(NamedTuple):
    """Compares rows of two kinds without a step, as `repeats` does."""

    columns: Sequence[tuple[Sequence[float], Sequence[float]]]  # of the same keys
    is_exact: bool

    @classmethod
    def of(cls, above: Rows, rows: Rows) -> Comparison:
        if not may_repeat(above, rows):
            return cls((), True)
        columns = dict(zip(above.keys, above.columns, strict=True))
        common = [
            (as_list(columns[key]), as_list(column))
            for key, column in zip(rows.keys, rows.columns, strict=True)
            if key in columns
        ]
        common.sort(key=lambda pair: sum(map(is_text, pair)))  # the first mostly differ already
        return cls(common, above.like.rounded == rows.like.rounded)

    def are_same(self, i: int, k: int) -> bool:
        """Whether row `i` of the one kind is row `k` of the other."""
        equal = same if self.is_exact else _close
        for one, other in self.columns:
            if one[i] != other[k] and not equal(one[i], other[k]):
                return False
        return bool(self.columns)


def may_repeat(above: Rows, rows: Rows) -> bool:
    """Whether rows of these kinds may be the same one, printed again, or rounded and in full."""
    if rows.like.clock != above.like.clock:
        return False
    if rows.like.rounded == above.like.rounded:
        return set(rows.keys) == set(above.keys)
    return _are_similar(above.keys, rows.keys)


def _are_similar(one: Collection[str], other: Collection[str]) -> bool:
    common = len(set(one).intersection(other))
    return common >= _MIN_COMMON_KEYS and common >= min(len(one), len(other))


def _close(one: float, other: float) -> bool:
    if math.isclose(one, other, rel_tol=_ROUNDING, abs_tol=5e-5):
        return True
    return math.isnan(one) and math.isnan(other)


def _named(values: dict[str, float]) -> dict[str, str]:
    """Floats as text, since JSON has no NaN and no infinity."""
    return {key: repr(value) for key, value in values.items()}
