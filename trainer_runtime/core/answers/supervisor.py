"""The answer of `start`: whether a run has its supervisor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.decoding import JsonRecord


@dataclass(frozen=True, slots=True)
class SupervisorAnswer(JsonRecord):
    """`started`: by this very call; else one ran already, or `error` says why none does."""

    started: bool = False
    pid: int | None = None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        answer = {"started": self.started, "pid": self.pid, "error": self.error}
        return {name: value for name, value in answer.items() if value is not None}
