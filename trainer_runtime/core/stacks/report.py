"""An inspection as it travels from the host: plain values, no frames or samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

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
    def from_dict(cls, data: Mapping[str, Any]) -> ProcessReport:
        return cls(
            pid=int(data["pid"]),
            state=str(data["state"]),
            cpu_share=float(data["cpu_share"]),
            samples=int(data["samples"]),
            moves=bool(data["moves"]),
            frames=tuple(map(str, data["frames"])),
            blocked=tuple(map(str, data["blocked"])),
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
    def from_dict(cls, data: Mapping[str, Any]) -> RankReport:
        return cls(
            rank=int(data["rank"]),
            step=_optional_int(data["step"]),
            at=str(data["at"]),
            process=ProcessReport.from_dict(data["process"]),
            workers=tuple(ProcessReport.from_dict(worker) for worker in data["workers"]),
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
    def from_dict(cls, data: Mapping[str, Any]) -> InspectionReport:
        """Raises KeyError, TypeError, ValueError: it is not such a report."""
        return cls(
            attempt=int(data["attempt"]),
            world_size=_optional_int(data["world_size"]),
            pace=_pace(data["pace"]),
            verdict=_verdict(data["verdict"]),
            ranks=tuple(RankReport.from_dict(rank) for rank in data["ranks"]),
            gpus={str(key): value for key, value in data["gpus"].items()},
            py_spy=None if data["py_spy"] is None else str(data["py_spy"]),
            stacks=str(data["stacks"]),
        )


def _pace(data: Mapping[str, Any]) -> Pace:
    return Pace(
        step=_optional_int(data["step"]),
        silent_s=_optional_float(data["silent_s"]),
        usual_s=_optional_float(data["usual_s"]),
        recent_s=_optional_float(data["recent_s"]),
        gained=int(data["gained"]),
    )


def _verdict(data: Mapping[str, Any]) -> Verdict:
    """One with a code or reason that is not known here says no more than that it stalls."""
    code, reason = str(data["code"]), str(data["reason"])
    if code not in ADVICE or reason not in REASONS:
        return _UNKNOWN_VERDICT
    evidence: Sequence[object] = data["evidence"]
    return Verdict(
        code,
        float(data["confidence"]),
        reason,
        _optional_int(data["rank"]),
        {str(name): value for name, value in data["slots"].items() if _is_number(value)},
        as_evidence(str(line).encode(errors="replace") for line in evidence),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def _optional_int(value: Any) -> int | None:
    return None if value is None else int(value)


def _optional_float(value: Any) -> float | None:
    return None if value is None else float(value)
