"""An inspection as it travels from the host: plain values, no frames or samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.decoding import Fields, JsonRecord
from trainer_runtime.core.diagnosis.stacks.messages import ADVICE, REASONS
from trainer_runtime.core.diagnosis.stacks.verdict import STALL, Pace, Verdict
from trainer_runtime.core.protocol.finding import as_evidence

_UNKNOWN_VERDICT = Verdict(STALL, 0.0, "unknown_place")


@dataclass(frozen=True, slots=True)
class ProcessReport(JsonRecord):
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


@dataclass(frozen=True, slots=True)
class RankReport(JsonRecord):
    """One rank: its last step, the kind of place where it stands, its trainer and data workers."""

    rank: int
    step: int | None
    at: str
    process: ProcessReport
    workers: tuple[ProcessReport, ...]


def _verdict(report: Fields) -> Verdict:
    """One with a code or reason that is not known here says no more than that it stalls."""
    fields = report.section("verdict")
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


@dataclass(frozen=True, slots=True)
class InspectionReport(JsonRecord):
    """Where an attempt's processes stand. `gpus`: `{"gpu_util/0": …}`. `stacks`: their text,
    masked. `py_spy`: what came of it, None where it was not needed."""

    attempt: int
    world_size: int | None
    pace: Pace
    verdict: Verdict = field(metadata={"read": _verdict})
    ranks: tuple[RankReport, ...]
    gpus: Mapping[str, object]
    py_spy: str | None
    stacks: str
