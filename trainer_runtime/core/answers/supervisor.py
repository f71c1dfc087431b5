"""The answer of `start`: whether a run has its supervisor."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.decoding import SparseRecord


@dataclass(frozen=True, slots=True)
class SupervisorAnswer(SparseRecord):
    """`started`: by this very call; else one ran already, or `error` says why none does."""

    started: bool = False
    pid: int | None = None
    error: str | None = None
