"""What is kept of a log that is read for its metrics."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


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

    @property
    def has_range(self) -> bool:
        return self.first is not None or self.last is not None

    def within(self, step: int) -> bool:
        return (self.first is None or step >= self.first) and (
            self.last is None or step <= self.last
        )


EVERYTHING = Wanted()
