"""A row of `check`: what was examined, its state, what was found, the remedy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that was examined. `fail`: no training can run like this.

    `remedy`: reported unless the state is ok.
    """

    name: str
    state: State
    found: str
    remedy: str | None = None

    def answer(self) -> dict[str, str | None]:
        return {**asdict(self), "remedy": None if self.state == "ok" else self.remedy}
