"""An output folder of another training, as it was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer_runtime.core.decoding import Fields, JsonRecord


@dataclass(frozen=True, slots=True)
class FoundCheckpoint(JsonRecord):
    """`path` is below the folder; `stamp` changes with any of its files; `rate` is the learning
    rate of the step after it. `problem`: why a run can't resume from it; only then the step may be
    unknown."""

    path: str
    step: int | None
    time: float
    size_bytes: int
    stamp: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    rate: float | None = None
    problem: str | None = None

    @property
    def resume_step(self) -> int:
        """The step of one without a problem."""
        if self.step is None:
            raise ValueError(f"the step of {self.path} is not known")
        return self.step

    @classmethod
    def of(cls, fields: Fields) -> FoundCheckpoint:
        checkpoint = super(FoundCheckpoint, cls).of(fields)
        if checkpoint.step is None and checkpoint.problem is None:
            raise fields.error("step", "is missing")
        return checkpoint


@dataclass(frozen=True, slots=True)
class FoundOutput(JsonRecord):
    """`shape` holds what a spec has to agree with, `described` what else the newest usable
    checkpoint says of its training, both by dotted fields of the spec; `open` names fields that a
    spec needs and the folder doesn't say. `notes`: what a resume from it can't have."""

    framework: str
    folder: str
    checkpoints: tuple[FoundCheckpoint, ...]
    shape: Mapping[str, Any] = field(default_factory=dict)
    described: Mapping[str, Any] = field(default_factory=dict)
    open: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
