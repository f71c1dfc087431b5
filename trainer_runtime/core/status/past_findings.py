"""What a run has met and is over: `1 over: cuda_oom at 119; batch.micro_batch 32 -> 16`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from trainer_runtime.core.policy.intervention import OUT_OF_MEMORY
from trainer_runtime.core.protocol.figures import number_text
from trainer_runtime.core.protocol.finding import Finding
from trainer_runtime.core.protocol.journal import AttemptRecord, FoundRecord, Record
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.core.protocol.states import PlacementState
from trainer_runtime.core.protocol.text import code_word

MOST_NAMED = 3
_MOST_CHANGES = 3
_FIELD = re.compile(r"[a-z_]{1,30}(?:\.[a-z_0-9]{1,30}){0,4}")
_PATCH = "patch:"
# What the journal calls a restart after either of these.
_BY_GUARD = frozenset({"nan_loss", "nan_grad"})


def past_findings(record: Record, newest: Progress | None) -> list[tuple[int, Finding]]:
    """By the journal, what is over: (attempt, finding), oldest first. `newest`: what the newest
    attempt has reported."""
    return [
        (item.attempt, item.finding)
        for item in record.findings.values()
        if is_over(item, record, newest)
    ]


def is_over(item: FoundRecord, record: Record, newest: Progress | None) -> bool:
    """Whether a finding is history: closed, or of an earlier attempt.

    One of lacking memory is not while its training only runs again with what it had, until it is
    past the step where it was met.
    """
    if item.closed_t is not None:
        return True
    later = [attempt for attempt in record.attempts if attempt.number > item.attempt]
    if not later or item.finding.code not in OUT_OF_MEMORY:
        return bool(later)
    met_again = any(
        other.finding.code == item.finding.code and other.attempt > item.attempt
        for other in record.findings.values()
    )
    return met_again or any(attempt.set for attempt in later) or _is_past(item, record, newest)


def _is_past(item: FoundRecord, record: Record, newest: Progress | None) -> bool:
    ended = next((attempt for attempt in record.attempts if attempt.number == item.attempt), None)
    step = item.finding.step or (ended.last_step if ended is not None else None) or 0
    reached = newest is not None and newest.attempt > item.attempt and newest.step > step + 1
    return record.state is PlacementState.COMPLETED or reached


def over_in_words(
    past: Sequence[tuple[int, Finding]], record: Record, most: int = MOST_NAMED
) -> str | None:
    """How many of these findings are over, and the newest `most` with what was changed after each;
    None where there are none. What is only for information doesn't count."""
    counted = [(attempt, finding) for attempt, finding in past if finding.severity != "info"]
    if not counted:
        return None
    counted.sort(key=lambda pair: (pair[0], pair[1].step or 0))
    named = [_in_words(attempt, finding, record) for attempt, finding in counted[-most:]]
    return f"{len(counted)} over: {' | '.join(reversed(named))}"


def _in_words(attempt: int, finding: Finding, record: Record) -> str:
    after = next((other for other in record.attempts if other.number == attempt + 1), None)
    step = finding.step
    is_answer = after is not None and _is_answer(after, finding)
    if step is None and after is not None:  # of how the attempt ended, as a kill
        ended = next((other for other in record.attempts if other.number == attempt), None)
        is_answer = ended is not None and after.why == ended.reason
        step = ended.last_step if ended is not None and is_answer else None
    at = "" if step is None else f" at {step}"
    changed = _changes(after, finding) if after is not None and is_answer else ()
    return "; ".join([f"{code_word(finding.code)}{at}", *changed])


def _is_answer(after: AttemptRecord, finding: Finding) -> bool:
    """Whether the attempt was started because of the finding."""
    if after.why.startswith(_PATCH):
        return after.why.split(":")[1] == finding.id
    return after.why == finding.code or (after.why == "guard" and finding.code in _BY_GUARD)


def _changes(after: AttemptRecord, finding: Finding) -> Iterable[str]:
    before = {path: value for patch in finding.patches for path, value in patch.expected.items()}
    set_ = [(path, new) for path, new in after.set.items() if _FIELD.fullmatch(path)]
    for path, new in set_[:_MOST_CHANGES]:
        old = f"{_value(before[path])} -> " if path in before else ""
        yield f"{path} {old}{_value(new)}"
    if not set_ and after.started_at_step is not None:
        yield f"resumed from {after.started_at_step}"


def _value(value: object) -> str:
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return ",".join(map(str, value))
    return str(value) if isinstance(value, (int, type(None))) else code_word(str(value))
