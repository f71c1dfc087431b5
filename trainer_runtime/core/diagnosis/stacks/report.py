"""An inspection as it travels from the host: plain values, no frames or samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.stacks.messages import ADVICE, REASONS
from trainer_runtime.core.diagnosis.stacks.verdict import STALL, Pace, Verdict
from trainer_runtime.core.protocol.finding import as_evidence

_UNKNOWN_VERDICT = Verdict(STALL, 0.0, "unknown_place")


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """One process. `frames`: the newest sample of its main thread, innermost first. `blocked`: the
    calls of the kernel about files that its threads are in, with their targets. `moves`: whether
    the main thread stood elsewhere in one of the `samples` than in another."""

    pid: int
    state: str
    cpu_share: float
    samples: int
    moves: bool
    frames: tuple[str, ...]
    blocked: tuple[str, ...]

    @classmethod
    def from_fields(cls, fields: Fields) -> ProcessReport:
        return cls(
            pid=fields.integer("pid"),
            state=fields.text("state"),
            cpu_share=fields.number("cpu_share"),
            samples=fields.integer("samples"),
            moves=fields.flag("moves"),
            frames=fields.texts("frames"),
            blocked=fields.texts("blocked"),
        )


@dataclass(frozen=True, slots=True)
class RankReport:
    """One rank: its last step, the kind of place where it stands, its trainer and data workers."""

    rank: int
    step: int | None
    at: str
    process: ProcessReport
    workers: tuple[ProcessReport, ...]

    @classmethod
    def from_fields(cls, fields: Fields) -> RankReport:
        return cls(
            rank=fields.integer("rank"),
            step=fields.find_integer("step"),
            at=fields.text("at"),
            process=ProcessReport.from_fields(fields.section("process")),
            workers=tuple(map(ProcessReport.from_fields, fields.sections("workers"))),
        )


@dataclass(frozen=True, slots=True)
class InspectionReport:
    """Where an attempt's processes stand. `gpus`: `{"gpu_util/0": …}`. `stacks`: their text,
    masked. `py_spy`: what came of it, None where it was not needed."""

    attempt: int
    world_size: int | None
    pace: Pace
    verdict: Verdict
    ranks: tuple[RankReport, ...]
    gpus: Mapping[str, object]
    py_spy: str | None
    stacks: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_fields(cls, fields: Fields) -> InspectionReport:
        return cls(
            attempt=fields.integer("attempt"),
            world_size=fields.find_integer("world_size"),
            pace=_pace(fields.section("pace")),
            verdict=_verdict(fields.section("verdict")),
            ranks=tuple(map(RankReport.from_fields, fields.sections("ranks"))),
            gpus=fields.open_map("gpus"),
            py_spy=fields.find_text("py_spy"),
            stacks=fields.text("stacks"),
        )


def _pace(fields: Fields) -> Pace:
    return Pace(
        step=fields.find_integer("step"),
        silent_s=fields.find_number("silent_s"),
        usual_s=fields.find_number("usual_s"),
        recent_s=fields.find_number("recent_s"),
        gained=fields.integer("gained"),
    )


def _verdict(fields: Fields) -> Verdict:
    """One with a code or reason that is not known here says no more than that it stalls."""
    code, reason = fields.text("code"), fields.text("reason")
    if code not in ADVICE or reason not in REASONS:
        return _UNKNOWN_VERDICT
    slots = fields.section("slots")
    return Verdict(
        code,
        fields.number("confidence"),
        reason,
        fields.find_integer("rank"),
        {name: _number(slots, name) for name in slots.values},
        as_evidence(line.encode(errors="replace") for line in fields.texts("evidence")),
    )


def _number(fields: Fields, name: str) -> float | int:
    """A whole number stays one: it may be a rank or a process."""
    return fields.integer(name) if isinstance(fields.values[name], int) else fields.number(name)
