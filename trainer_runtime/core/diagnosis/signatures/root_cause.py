"""From what was seen, and how the process ended, to the first cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.signatures.causes import (
    ALWAYS,
    COLLECTIVES,
    CRASHES,
    IF_EARLIER,
    KILLED,
    SIGNALS,
)
from trainer_runtime.core.diagnosis.signatures.last_words import last_words
from trainer_runtime.core.diagnosis.signatures.outcome import Outcome
from trainer_runtime.core.diagnosis.signatures.scan import Seen, SignatureScan, outlived
from trainer_runtime.core.diagnosis.signatures.signature import Sighting, Strength, signature
from trainer_runtime.core.diagnosis.signatures.slots import Slots
from trainer_runtime.core.protocol.finding import SEVERITIES, Severity

# At its end a log says no more: what is known from elsewhere comes after all of it.
_AFTER_THE_LOG = 1 << 62
_NEW_SCALE = 1024.0  # a loss scale that settles stays above
_MOST_SETTLING = 25  # overflows: from 2**32, where older releases start, to 2**10
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
    "unknown_error/last_words", "\n", "(?!)", confidence=0.5, strength=Strength.GUESSED
)
_WITH_EXIT_CODE = 0.8


@dataclass(slots=True)
class Cause:
    """One code, with everything that was seen of it. `onset` is a byte of the log, or None."""

    code: str
    severity: Severity
    confidence: float
    strength: Strength
    order: int
    step: int | None = None
    lines: list[bytes] = field(default_factory=list)
    slots: Slots = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)
    led_to: list[str] = field(default_factory=list)
    went_on: bool = False

    @property
    def onset(self) -> int | None:
        return self.order if 0 <= self.order < _AFTER_THE_LOG else None


def conclude(seen: Seen, outcome: Outcome | None = None) -> list[Cause]:
    """The causes, the first one first; what one of them explains is in its `led_to`.

    Critical ones come before warnings, warnings before what is only worth knowing.
    """
    outcome = outcome or Outcome()
    sightings = _of_the_end(seen, outcome)
    for line in outcome.kernel:
        sightings += _in_kernel(line)
    causes = {cause.code: cause for cause in _by_code(sightings)}
    for cause in (*_gathered(seen), *_from_outcome(outcome, causes), *_went_on(seen, outcome)):
        causes.setdefault(cause.code, cause)
    if outcome.asked == "stopped":
        causes = {code: one for code, one in causes.items() if not _is_stopping(one)}
    if seen.episode.root_exit not in (None, -9) and _is_guessed(causes.get("host_oom")):
        del causes["host_oom"]  # torchrun's own, after the first process had failed otherwise
    if not any(_names_the_end(one) for one in causes.values()):
        causes |= {one.code: one for one in _unknown(seen, outcome)}
    return _first(list(causes.values()), seen.episode.root_rank)


def _names_the_end(cause: Cause) -> bool:
    return not cause.went_on and (cause.severity == "critical" or cause.code in SIGNALS)


def _unknown(seen: Seen, outcome: Outcome) -> list[Cause]:
    """An error at the log's end that has no code of its own."""
    if outcome.running or outcome.well or outcome.asked is not None:
        return []
    words = last_words(seen.tail)
    if words is None:
        return []
    offset, context = seen.tail_offset + words.place, seen.tail[: words.place]
    (cause,) = _by_code([Sighting(_UNKNOWN, offset, words.lines[-1], context=context)])
    cause.lines = list(words.lines)
    if outcome.code is not None:
        cause.confidence = _WITH_EXIT_CODE
    return [cause]


def _of_the_end(seen: Seen, outcome: Outcome) -> list[Sighting]:
    """What the last episode tells, unless training went on after it or ended well."""
    sightings = list(seen.episode.sightings.values())
    if outlived(seen.episode):
        return []
    if outcome.well:
        return [one for one in sightings if one.code in SIGNALS]
    return sightings


def _in_kernel(line: bytes) -> list[Sighting]:
    scan = SignatureScan()
    scan.feed(line)
    scan.finish()
    found = list(scan.seen().episode.sightings.values())
    for sighting in found:
        sighting.offset, sighting.context = _AFTER_THE_LOG, b""
    return found


def _by_code(sightings: Iterable[Sighting]) -> list[Cause]:
    """One cause a code: of what was seen, the surest names it, the earliest dates it."""
    causes: dict[str, Cause] = {}
    for one in sorted(sightings, key=lambda one: (-one.signature.strength, one.offset)):
        cause = causes.get(one.code)
        if cause is None:
            cause = causes[one.code] = Cause(
                one.code,
                one.signature.severity,
                one.signature.confidence,
                one.signature.strength,
                one.offset,
                one.step,
            )
        elif one.offset < cause.order:
            cause.order, cause.step = one.offset, one.step
        if one.signature.severity == "info":
            cause.severity = "info"
        cause.confidence = max(cause.confidence, one.signature.confidence)
        cause.lines.append(one.line)
        cause.slots = {**one.slots, **cause.slots}
        cause.ranks |= one.ranks
    for cause in causes.values():
        if len(cause.ranks) == 1:
            cause.slots.setdefault("rank", min(cause.ranks))
    return list(causes.values())


def _gathered(seen: Seen) -> list[Cause]:
    """What counts by how often it was seen, and whether it passed."""
    kept = []
    judged: dict[str, Severity] = {}
    for sighting in seen.gathered.values():
        severity = _JUDGES.get(sighting.code, _as_it_is)(sighting, seen)
        if severity is not None:
            kept.append(sighting)
            known = judged.get(sighting.code, severity)
            judged[sighting.code] = max(known, severity, key=SEVERITIES.index)
    causes = _by_code(kept)
    for cause in causes:
        cause.severity = judged[cause.code]
        if cause.code == "fp16_overflow" and _at_floor(cause.slots):
            cause.code, cause.severity = "fp16_scale_floor", "critical"
    return causes


def _as_it_is(sighting: Sighting, seen: Seen) -> Severity | None:
    return sighting.signature.severity


def _overflow(sighting: Sighting, seen: Seen) -> Severity | None:
    """A few overflows are how the scale is found; many, low ones, or nothing else aren't."""
    slots = sighting.slots
    scale = slots.get("loss_scale", slots.get("loss_scale_was", _NEW_SCALE))
    settling = scale >= _NEW_SCALE and sighting.count <= _MOST_SETTLING
    return None if settling and seen.progress_seen else "warning"


def _nan_loss(sighting: Sighting, seen: Seen) -> Severity | None:
    if not sighting.settled:
        return "critical"
    return "info" if sighting.count <= _FEW else "warning"


def _nan_grad(sighting: Sighting, seen: Seen) -> Severity | None:
    if not sighting.settled:
        return "critical"
    return None if sighting.count <= _FEW else "warning"


_JUDGES = {"fp16_overflow": _overflow, "nan_loss": _nan_loss, "nan_grad": _nan_grad}


def _at_floor(slots: Mapping[str, float | int]) -> bool:
    scale, was = slots.get("loss_scale"), slots.get("loss_scale_was")
    return scale is not None and (scale < 1e-3 or (was is not None and was <= scale))


def _from_outcome(outcome: Outcome, said: Mapping[str, Cause]) -> list[Cause]:
    """What the process's end says by itself."""
    if outcome.asked == "time_limit":
        return [_outside("time_limit", 0.99, Strength.STATED)]
    if outcome.asked is not None or outcome.running:
        return []
    if outcome.code == _SAVED_ON_SIGTERM:
        return [_outside("preempted_sigterm", 0.95)]
    if outcome.code == _TIMEOUT_COMMAND:
        return [_outside("time_limit", 0.7)]
    named = _SIGNAL_CODES.get(outcome.killed_by or 0)
    if named is not None:
        code, confidence = named
        if code == "host_oom":
            confidence = _by_host_memory(outcome.telemetry)
        return [_outside(code, confidence)]
    free = outcome.telemetry.get("disk_free_gib")
    failed = outcome.code not in (None, 0)
    if failed and not said and free is not None and free < _NO_DISK_LEFT_GIB:
        return [_outside("disk_full", 0.6)]
    return []


def _outside(code: str, confidence: float, strength: Strength = Strength.GUESSED) -> Cause:
    # Less likely than not: told, but nothing to be alarmed by.
    severity: Severity = "critical" if confidence >= 0.5 else "warning"
    return Cause(code, severity, confidence, strength, _AFTER_THE_LOG)


def _by_host_memory(telemetry: Mapping[str, float]) -> float:
    """How likely a SIGKILL was for memory: surer where the machine had none left."""
    used, total = telemetry.get("host_mem_gib"), telemetry.get("host_mem_total_gib")
    if used is None or not total:
        return 0.6
    share = used / total
    if share >= 0.9:
        return 0.85
    return 0.6 if share >= 0.7 else 0.4


def _went_on(seen: Seen, outcome: Outcome) -> list[Cause]:
    """Failures that ended a process while the training came back."""
    sightings = list(seen.outlived.values())
    episode = seen.episode
    if episode.died and outlived(episode):
        sightings += episode.sightings.values()
    causes = _by_code(sightings)
    for cause in causes:
        cause.severity = "info" if cause.severity == "info" else "warning"
        cause.went_on = True
    return [cause for cause in causes if cause.code not in COLLECTIVES | SIGNALS]


def _is_guessed(cause: Cause | None) -> bool:
    return cause is not None and cause.strength is Strength.GUESSED


def _is_stopping(cause: Cause) -> bool:
    """What a stop that was asked for looks like."""
    return cause.code in SIGNALS or (cause.code in KILLED and cause.strength < Strength.STATED)


def _first(causes: list[Cause], root_rank: int | None) -> list[Cause]:
    def place(cause: Cause) -> tuple[int, bool, int]:
        not_root = root_rank is None or root_rank not in cause.ranks
        return -SEVERITIES.index(cause.severity), not_root, cause.order

    causes = sorted(causes, key=place)
    left = [one for one in causes if not _explaining(one, causes)]
    if not any(one.severity == "critical" for one in left):
        left = sorted([*left, *_any_critical(causes, left)], key=place)
    for one in causes:
        if one not in left:
            explaining = [cause for cause in _explaining(one, causes) if cause in left] or left
            explaining[0].led_to.append(one.code)
    return left


def _any_critical(causes: Sequence[Cause], left: Sequence[Cause]) -> list[Cause]:
    """The first of several that explain each other in a circle."""
    critical = [one for one in causes if one.severity == "critical" and one not in left]
    return critical[:1]


def _explaining(symptom: Cause, causes: Sequence[Cause]) -> list[Cause]:
    return [
        cause
        for cause in causes
        if cause is not symptom and not cause.went_on and _explains(cause, symptom)
    ]


def _explains(cause: Cause, symptom: Cause) -> bool:
    if symptom.went_on or cause.severity == "info":
        return symptom.code in SIGNALS and cause.code == "time_limit"
    code = symptom.code
    if cause.code in ALWAYS.get(code, ()):
        return cause.strength is not Strength.GUESSED
    earlier = cause.order <= symptom.order
    if earlier and cause.code in IF_EARLIER.get(code, ()):
        return True
    if symptom.strength is Strength.STATED or cause.strength <= symptom.strength:
        return False
    if cause.code in CRASHES:
        return True
    if cause.code in SIGNALS:
        return earlier or code in KILLED
    return symptom.strength is Strength.GUESSED and cause.code in COLLECTIVES
