"""Causes from each source: the log's last episode, cumulative failures, the end of the process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.decoding import number
from trainer_runtime.core.diagnosis.signatures.causality import COLLECTIVES, SIGNALS
from trainer_runtime.core.diagnosis.signatures.final_error import (
    FinalError,
    final_error,
    own_exceptions,
)
from trainer_runtime.core.diagnosis.signatures.outcome import Outcome
from trainer_runtime.core.diagnosis.signatures.scan import ScanResult, SignatureScan
from trainer_runtime.core.diagnosis.signatures.signature import (
    Occurrence,
    Strength,
    log_order,
    signature,
)
from trainer_runtime.core.diagnosis.signatures.slots import Slots
from trainer_runtime.core.diagnosis.signatures.unknown_error import evidence, traceback_of
from trainer_runtime.core.diagnosis.traceback_text import Phase, last_traceback
from trainer_runtime.core.protocol.finding import SEVERITIES, Severity

_NEW_SCALE = 1024.0  # a loss scale that settles stays above
_MAX_SETTLING = 25  # overflows: from 2**32, where older releases start, to 2**10
_FEW = 5
_SIGNAL_CODES = {
    1: ("session_hangup", 0.85),
    2: ("interrupted", 0.85),
    7: ("shm_too_small", 0.6),
    9: ("host_oom", 0.6),
    15: ("preempted_sigterm", 0.8),
}
_SAVED_ON_SIGTERM = 75
_TIMEOUT_COMMAND = 124
_NO_DISK_LEFT_GIB = 0.05
_UNKNOWN = signature(
    "unknown_error/final_error", "\n", "(?!)", confidence=0.5, strength=Strength.GUESSED
)
_WITH_EXIT_CODE = 0.8


@dataclass(slots=True)
class Cause:
    """A code with all its occurrences. `onset` is the byte of the log where it began, None where it
    is known from outside the log. `continued`: training came back after it. `phase`: what the
    program was doing, where that decides what helps."""

    code: str
    severity: Severity
    confidence: float
    strength: Strength
    onset: int | None
    step: int | None = None
    lines: list[bytes] = field(default_factory=list)
    slots: Slots = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)
    led_to: list[str] = field(default_factory=list)
    continued: bool = False
    phase: Phase | None = None


def from_last_episode(result: ScanResult, outcome: Outcome) -> list[Cause]:
    """The failures at the log's end, unless training continued after them, and dmesg's."""
    occurrences: list[Occurrence] = []
    if not result.episode.is_survived:
        occurrences += result.episode.occurrences.values()
    if outcome.succeeded:
        occurrences = [occurrence for occurrence in occurrences if occurrence.code in SIGNALS]
    for line in outcome.dmesg:
        occurrences += _in_dmesg(line)
    return _by_code(occurrences)


def from_cumulative(result: ScanResult) -> list[Cause]:
    """Failures that count by how often they occurred, and by whether they passed."""
    counted = []
    severities: dict[str, Severity] = {}
    for occurrence in result.cumulative.values():
        severity = _SEVERITY_RULES.get(occurrence.code, _own_severity)(occurrence, result)
        if severity is not None:
            counted.append(occurrence)
            severity_so_far = severities.get(occurrence.code, severity)
            severities[occurrence.code] = max(severity_so_far, severity, key=SEVERITIES.index)
    causes = _by_code(counted)
    for cause in causes:
        cause.severity = severities[cause.code]
        if cause.code == "fp16_overflow" and _is_scale_minimal(cause.slots):
            cause.code, cause.severity = "fp16_scale_floor", "critical"
    return causes


def from_process_end(outcome: Outcome, *, log_has_causes: bool) -> list[Cause]:
    """What the exit code, the signal or the supervisor's reason says by itself."""
    if outcome.terminated_why == "time_limit":
        return [_from_outside("time_limit", 0.99, Strength.STATED)]
    if outcome.terminated_why is not None or outcome.running:
        return []
    if outcome.lost is not None:
        return [_from_outside("node_lost", 0.95, Strength.STATED, outcome.lost)]
    if outcome.code == _SAVED_ON_SIGTERM:
        return [_from_outside("preempted_sigterm", 0.95)]
    if outcome.code == _TIMEOUT_COMMAND:
        return [_from_outside("time_limit", 0.7)]
    named = _SIGNAL_CODES.get(outcome.killed_by or 0)
    if named is not None:
        code, confidence = named
        if code == "host_oom":
            if outcome.had_memory:
                return [_killed_with_memory_free(outcome)]
            telemetry = {} if outcome.elsewhere else outcome.telemetry
            confidence = _confidence_by_host_memory(telemetry)
        return [_from_outside(code, confidence, line=outcome.where)]
    free = outcome.telemetry.get("disk_free_gib")
    failed = outcome.code not in (None, 0)
    if failed and not log_has_causes and free is not None and free < _NO_DISK_LEFT_GIB:
        return [_from_outside("disk_full", 0.6)]
    return []


def from_survived(result: ScanResult) -> list[Cause]:
    """Failures that ended a process while the training came back."""
    occurrences = list(result.survived.values())
    if result.episode.died and result.episode.is_survived:
        occurrences += result.episode.occurrences.values()
    causes = _by_code(occurrences)
    for cause in causes:
        cause.severity = "info" if cause.severity == "info" else "warning"
        cause.continued = True
    return [cause for cause in causes if cause.code not in COLLECTIVES | SIGNALS]


def from_final_error(
    result: ScanResult, outcome: Outcome, *, before_others: bool = False
) -> list[Cause]:
    """Errors at the log's end that have no code of their own: the one that says most; or, before
    what others did to processes, the program's exceptions in their order."""
    if outcome.running or outcome.succeeded or outcome.terminated_why is not None:
        return []
    errors = own_exceptions(result.tail) if before_others else [final_error(result.tail)]
    return [_unknown(error, result, outcome) for error in errors if error is not None]


def _unknown(error: FinalError, result: ScanResult, outcome: Outcome) -> Cause:
    offset, context = result.tail_offset + error.start, result.tail[: error.start]
    (cause,) = _by_code([Occurrence(_UNKNOWN, offset, error.lines[-1], context=context)])
    cause.lines = list(error.lines)
    if (traceback := traceback_of(result.tail, error.lines[-1])) is not None:
        cause.phase = traceback.phase
        cause.lines = evidence(traceback, error.lines[-1], result.tail)
    if outcome.code is not None:
        cause.confidence = _WITH_EXIT_CODE
    return cause


def _in_dmesg(line: bytes) -> list[Occurrence]:
    scan = SignatureScan()
    scan.feed(line)
    scan.finish()
    occurrences = list(scan.result().episode.occurrences.values())
    for occurrence in occurrences:
        occurrence.offset, occurrence.context = None, b""
    return occurrences


def _by_code(occurrences: Iterable[Occurrence]) -> list[Cause]:
    """One cause for each code: its strongest occurrence describes it, its earliest dates it."""
    causes: dict[str, Cause] = {}
    for occurrence in sorted(
        occurrences, key=lambda occurrence: (-occurrence.signature.strength, *_order(occurrence))
    ):
        cause = causes.get(occurrence.code)
        if cause is None:
            cause = causes[occurrence.code] = Cause(
                occurrence.code,
                occurrence.signature.severity,
                occurrence.signature.confidence,
                occurrence.signature.strength,
                occurrence.offset,
                occurrence.step,
            )
        elif _order(occurrence) < log_order(cause.onset):
            cause.onset, cause.step = occurrence.offset, occurrence.step
        if occurrence.signature.severity == "info":
            cause.severity = "info"
        cause.confidence = max(cause.confidence, occurrence.signature.confidence)
        cause.lines.append(occurrence.line)
        if cause.phase is None and cause.code == "cuda_oom":
            cause.phase = _phase(occurrence)
        cause.slots = {**occurrence.slots, **cause.slots}
        cause.ranks |= occurrence.ranks
    for cause in causes.values():
        if len(cause.ranks) == 1:
            cause.slots.setdefault("rank", min(cause.ranks))
    return list(causes.values())


def _phase(occurrence: Occurrence) -> Phase | None:
    traceback = last_traceback(occurrence.context.decode("utf-8", errors="replace"))
    return traceback.phase if traceback else None


def _order(occurrence: Occurrence) -> tuple[bool, int]:
    return log_order(occurrence.offset)


def _own_severity(occurrence: Occurrence, result: ScanResult) -> Severity | None:
    return occurrence.signature.severity


def _overflow(occurrence: Occurrence, result: ScanResult) -> Severity | None:
    """A few overflows are normal while the scale is found; many, or at a low scale, are not."""
    scale, was = _loss_scales(occurrence.slots)
    scale = scale or was or _NEW_SCALE
    settling = scale >= _NEW_SCALE and occurrence.count <= _MAX_SETTLING
    return None if settling and result.progress_seen else "warning"


def _nan_loss(occurrence: Occurrence, result: ScanResult) -> Severity | None:
    if not occurrence.settled:
        return "critical"
    return "info" if occurrence.count <= _FEW else "warning"


def _nan_grad(occurrence: Occurrence, result: ScanResult) -> Severity | None:
    if not occurrence.settled:
        return "critical"
    return None if occurrence.count <= _FEW else "warning"


# The severity of cumulative failures; None: not worth a finding.
_SEVERITY_RULES: Mapping[str, Callable[[Occurrence, ScanResult], Severity | None]] = {
    "fp16_overflow": _overflow,
    "nan_loss": _nan_loss,
    "nan_grad": _nan_grad,
}


def _loss_scales(slots: Slots) -> tuple[float | None, float | None]:
    """The loss scale, and the one before it."""
    scale, was = slots.get("loss_scale"), slots.get("loss_scale_was")
    return number(scale), number(was)


def _is_scale_minimal(slots: Slots) -> bool:
    scale, was = _loss_scales(slots)
    return scale is not None and (scale < 1e-3 or (was is not None and was <= scale))


def _from_outside(
    code: str, confidence: float, strength: Strength = Strength.GUESSED, line: str | None = None
) -> Cause:
    """`line`: what is known of it, as evidence."""
    # A cause that is less likely than not is only a warning.
    severity: Severity = "critical" if confidence >= 0.5 else "warning"
    lines = [] if line is None else [line.encode()]
    return Cause(code, severity, confidence, strength, None, lines=lines)


def _killed_with_memory_free(outcome: Outcome) -> Cause:
    cause = _from_outside("sigkill", 0.9, line=outcome.where)
    cause.severity = "warning"  # by itself it is nothing that a restart would meet again
    cause.slots = {
        "used_gib": outcome.telemetry["host_mem_gib"],
        "total_gib": outcome.telemetry["host_mem_total_gib"],
    }
    return cause


def _confidence_by_host_memory(telemetry: Mapping[str, float]) -> float:
    """How likely a SIGKILL was for lack of memory, given the host's memory use."""
    used, total = telemetry.get("host_mem_gib"), telemetry.get("host_mem_total_gib")
    if used is None or not total:
        return 0.6
    share = used / total
    if share >= 0.9:
        return 0.85
    return 0.6 if share >= 0.7 else 0.4
