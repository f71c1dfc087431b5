"""What one line of a benchmark found: figures of ours, of the peer, and of an earlier version.

A unit that ends in "/s" is a rate, of which more is better; of every other unit less is better.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any, Literal

Bound = Literal["times as fast", "of the peer's time", "at least", "at most"]
Verdict = Literal["met", "missed", "undecided"]


@dataclass(frozen=True, slots=True)
class Goal:
    """What was promised. The first two kinds compare with the peer, the others bound the figure."""

    kind: Bound
    value: float

    def __str__(self) -> str:
        match self.kind:
            case "times as fast":
                return f"≥ {self.value:g}×"
            case "of the peer's time":
                return f"≤ {self.value:g}× its time"
            case "at least":
                return f"≥ {self.value:g}"
            case "at most":
                return f"≤ {self.value:g}"


@dataclass(frozen=True, slots=True)
class Result:
    """One line. A sample is the figure of one turn, in `unit`; turns of both sides alternate."""

    benchmark: str
    name: str
    unit: str
    ours: tuple[float, ...] = ()
    peer: tuple[float, ...] = ()
    peer_name: str = ""
    before: tuple[float, ...] = ()
    goal: Goal | None = None
    note: str = ""
    not_run: str = ""

    @property
    def is_rate(self) -> bool:
        return self.unit.endswith("/s")

    @property
    def ratio(self) -> float | None:
        """How many times as fast as the peer: the median over the turns."""
        ratios = self._ratios()
        return statistics.median(ratios) if ratios else None

    @property
    def noise(self) -> float | None:
        """Half the distance between the quartiles of the turns' ratios (without a peer: of our
        figures), as a share of their median; None with fewer than two turns."""
        samples = self._ratios() or list(self.ours)
        if len(samples) < 2 or not statistics.median(samples):
            return None
        low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
        return (high - low) / 2 / abs(median)

    @property
    def verdict(self) -> Verdict | None:
        """Whether the goal is met; undecided where it lies within the noise."""
        found = self._compared()
        if self.goal is None or found is None:
            return None
        margin = found / self.goal.value if self.goal.value else float("inf")
        if abs(margin - 1) < (self.noise or 0.0):
            return "undecided"
        wants_more = self.goal.kind in ("times as fast", "at least")
        return "met" if (margin >= 1) == wants_more or margin == 1 else "missed"

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"benchmark": self.benchmark, "name": self.name, "unit": self.unit}
        for name in ("ours", "peer", "before"):
            if samples := getattr(self, name):
                fields[name] = [float(f"{sample:.6g}") for sample in samples]
        if self.goal is not None:
            fields["goal"] = {"kind": self.goal.kind, "value": self.goal.value}
        for name in ("peer_name", "note", "not_run"):
            if text := getattr(self, name):
                fields[name] = text
        return fields

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Result:
        fields = dict(found)
        for name in ("ours", "peer", "before"):
            fields[name] = tuple(fields.get(name, ()))
        if goal := fields.pop("goal", None):
            fields["goal"] = Goal(**goal)
        return cls(**fields)

    def _ratios(self) -> list[float]:
        pairs = zip(self.peer, self.ours, strict=False)
        if self.is_rate:
            return [ours / peer for peer, ours in pairs if peer]
        return [peer / ours for peer, ours in pairs if ours]

    def _compared(self) -> float | None:
        """The figure that the goal is about."""
        if self.goal is None or not self.ours:
            return None
        if self.goal.kind in ("at least", "at most"):
            return statistics.median(self.ours)
        if not self.ratio:
            return None
        return self.ratio if self.goal.kind == "times as fast" else 1 / self.ratio


def times_as_fast(value: float) -> Goal:
    return Goal("times as fast", value)


def of_peers_time(value: float) -> Goal:
    return Goal("of the peer's time", value)


def at_least(value: float) -> Goal:
    return Goal("at least", value)


def at_most(value: float) -> Goal:
    return Goal("at most", value)
