"""The answer of `lease`: how the timer of a rented instance stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.decoding import JsonRecord


@dataclass(frozen=True, slots=True)
class TimerAnswer(JsonRecord):
    """`lacks`: why the instance can't end itself, None where nothing is missing. `t` is the host's
    clock and `end_t` the lease's end by it, in Unix seconds. `started`: by this very call."""

    runs: bool
    t: float
    end_t: float | None = None
    lacks: str | None = None
    started: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        answer = {"runs": self.runs, "end_t": self.end_t, "lacks": self.lacks, "t": self.t}
        return answer if self.started is None else {"started": self.started, **answer}
