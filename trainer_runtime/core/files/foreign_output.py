"""An output folder of another training, as it was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trainer_runtime.core.decoding import Fields


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """`path` is below the folder; `stamp` changes with any of its files; `rate` is the learning
    rate of the step after it. `problem`: why a run can't resume from it; only then the step may be
    unknown."""

    path: str
    step: int | None
    time: float
    size_bytes: int
    stamp: str
    metrics: Mapping[str, Any] = field(default_factory=dict)
    rate: float | None = None
    problem: str | None = None

    @property
    def resume_step(self) -> int:
        """The step of one without a problem."""
        if self.step is None:
            raise ValueError(f"the step of {self.path} is not known")
        return self.step

    @classmethod
    def from_fields(cls, fields: Fields) -> FoundCheckpoint:
        step, problem = fields.find_integer("step"), fields.find_text("problem")
        if step is None and problem is None:
            raise fields.error("step", "is missing")
        metrics = fields.section("metrics")
        return cls(
            path=fields.text("path"),
            step=step,
            time=fields.number("time"),
            size_bytes=fields.integer("size_bytes"),
            stamp=fields.text("stamp"),
            metrics={name: metrics.number(name) for name in metrics.values},
            rate=fields.find_number("rate"),
            problem=problem,
        )


@dataclass(frozen=True, slots=True)
class FoundOutput:
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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_fields(cls, fields: Fields) -> FoundOutput:
        return cls(
            framework=fields.text("framework"),
            folder=fields.text("folder"),
            checkpoints=tuple(map(FoundCheckpoint.from_fields, fields.sections("checkpoints"))),
            shape=fields.open_map("shape"),
            described=fields.open_map("described"),
            open=fields.texts("open"),
            notes=fields.texts("notes"),
        )
