"""Points one by one, as the store takes what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from trainmaster.store.metrics_rows import Measured
from trainmaster.store.metrics_store import MetricsStore


class Point(NamedTuple):
    """One value of one key. `t`: Unix seconds, None if unknown."""

    key: str
    x: int
    t: float | None
    value: float

    @property
    def measured(self) -> Measured:
        return self.x, self.t, {self.key: self.value}


def add_points(
    store: MetricsStore,
    run_id: str,
    placement: int,
    attempt: int,
    segment: int,
    points: Iterable[Point],
) -> None:
    rows = [point.measured for point in points]
    store.add_measured(run_id, placement, attempt, segment, rows)
