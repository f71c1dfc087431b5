"""The root cause among all causes of a failed training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from trainer_runtime.core.diagnosis.signatures.causality import (
    ALWAYS,
    COLLECTIVES,
    CRASHES,
    DONE_BY_OTHERS,
    GENERAL,
    IF_EARLIER,
    INSTEAD_OF,
    KILLED,
    SIGNALS,
)
from trainer_runtime.core.diagnosis.signatures.cause_sources import (
    Cause,
    from_cumulative,
    from_final_error,
    from_last_episode,
    from_process_end,
    from_survived,
)
from trainer_runtime.core.diagnosis.signatures.outcome import Outcome
from trainer_runtime.core.diagnosis.signatures.scan import ScanResult
from trainer_runtime.core.diagnosis.signatures.signature import Strength, log_order
from trainer_runtime.core.protocol.finding import SEVERITIES

_SIGKILL = -9


def root_causes(result: ScanResult, outcome: Outcome | None = None) -> list[Cause]:
    """The causes, root cause first; the symptoms that each explains are in its `led_to`.

    Sorted by severity; of one severity the rank that torchrun's summary names comes first, then by
    position in the log, with causes from outside the log last.
    """
    outcome = outcome or Outcome()
    causes = _without_side_effects(_by_precedence(result, outcome), result, outcome)
    if not any(_ends_the_training(cause) for cause in causes):
        causes = [*causes, *_unnamed_errors(causes, result, outcome)[:1]]
    return _without_symptoms(causes, result.episode.root_rank)


def _unnamed_errors(causes: Sequence[Cause], result: ScanResult, outcome: Outcome) -> list[Cause]:
    """Errors at the log's end without a code; before what others do to processes, if that is in the
    log, since a launcher or scheduler ends them after an error."""
    named_lines = {line for cause in causes for line in cause.lines}
    ends = [cause.onset for cause in causes if _is_done_to_a_process(cause)]
    return [
        error
        for error in from_final_error(result, outcome, before_others=bool(ends))
        if not _is_named(error, named_lines)
        and all(log_order(error.onset) < log_order(onset) for onset in ends)
    ]


def _is_named(ended: Cause, lines: Iterable[bytes]) -> bool:
    """Whether one of the lines is one of the last error's, without what stands before it."""
    return any(line.endswith(named) for line in ended.lines for named in lines)


def _by_precedence(result: ScanResult, outcome: Outcome) -> list[Cause]:
    """The causes of all sources. Where several sources name one code, the first of them counts."""
    last_episode = from_last_episode(result, outcome)
    sources = (
        last_episode,
        from_cumulative(result),
        from_process_end(outcome, log_has_causes=bool(last_episode)),
        from_survived(result),
    )
    causes: dict[str, Cause] = {}
    for cause in (cause for source in sources for cause in source):
        causes.setdefault(cause.code, cause)
    less_exact = {code for cause in causes for code in INSTEAD_OF.get(cause, GENERAL)}
    return [cause for code, cause in causes.items() if code not in less_exact]


def _without_side_effects(
    causes: Sequence[Cause], result: ScanResult, outcome: Outcome
) -> list[Cause]:
    """Leave out what a requested stop, or torchrun after a first failure, does to processes."""
    if outcome.terminated_why == "stopped":
        causes = [cause for cause in causes if not _is_effect_of_a_stop(cause)]
    if outcome.had_memory:
        causes = [cause for cause in causes if not _is_kill_without_a_word_of_memory(cause)]
    if result.episode.root_exit not in (None, _SIGKILL):
        causes = [cause for cause in causes if not _is_guessed_kill(cause)]
    return list(causes)


def _is_effect_of_a_stop(cause: Cause) -> bool:
    return cause.code in SIGNALS or (cause.code in KILLED and cause.strength < Strength.STATED)


def _is_guessed_kill(cause: Cause) -> bool:
    return cause.code == "host_oom" and cause.strength is Strength.GUESSED


def _is_kill_without_a_word_of_memory(cause: Cause) -> bool:
    return cause.code == "host_oom" and cause.strength < Strength.STATED


def _ends_the_training(cause: Cause) -> bool:
    is_critical = not cause.continued and cause.severity == "critical"
    return is_critical and not _is_done_to_a_process(cause)


def _is_done_to_a_process(cause: Cause) -> bool:
    """Whether another process may have led to it: a scheduler, a launcher, a rank that failed."""
    if cause.code in KILLED:
        return cause.strength is Strength.GUESSED
    return cause.code in DONE_BY_OTHERS


def _without_symptoms(causes: Sequence[Cause], root_rank: int | None) -> list[Cause]:
    """The causes that no other explains, in order; symptoms are added to their cause's `led_to`."""
    ordered = sorted(causes, key=partial(_rank, root_rank=root_rank))
    explanations = {candidate.code: _explaining(candidate, ordered) for candidate in ordered}
    roots = [candidate for candidate in ordered if not explanations[candidate.code]]
    if not any(candidate.severity == "critical" for candidate in roots):
        # Critical causes may explain each other in a circle: the first of them is the root.
        critical = [candidate for candidate in ordered if candidate.severity == "critical"]
        roots = sorted([*roots, *critical[:1]], key=partial(_rank, root_rank=root_rank))
    roots = roots or ordered[:1]
    for candidate in ordered:
        if candidate not in roots:
            explaining = [
                cause for cause in explanations[candidate.code] if cause in roots
            ] or roots
            explaining[0].led_to.append(candidate.code)
    return roots


def _rank(cause: Cause, root_rank: int | None) -> tuple[int, bool, tuple[bool, int]]:
    is_other_rank = root_rank is None or root_rank not in cause.ranks
    return -SEVERITIES.index(cause.severity), is_other_rank, log_order(cause.onset)


def _explaining(symptom: Cause, causes: Sequence[Cause]) -> list[Cause]:
    return [
        cause
        for cause in causes
        if cause is not symptom and not cause.continued and _explains(cause, symptom)
    ]


def _explains(cause: Cause, symptom: Cause) -> bool:
    if symptom.continued or cause.severity == "info":
        return symptom.code in SIGNALS and cause.code == "time_limit"
    if _is_listed(ALWAYS, cause, symptom):
        return cause.strength is not Strength.GUESSED
    is_earlier = log_order(cause.onset) <= log_order(symptom.onset)
    if is_earlier and _is_listed(IF_EARLIER, cause, symptom):
        return True
    if symptom.strength is Strength.STATED or cause.strength <= symptom.strength:
        return False
    if cause.code in CRASHES:
        return True
    if cause.code in SIGNALS:
        return is_earlier or symptom.code in KILLED
    return symptom.strength is Strength.GUESSED and cause.code in COLLECTIVES


def _is_listed(table: Mapping[str, frozenset[str]], cause: Cause, symptom: Cause) -> bool:
    return cause.code in table.get(symptom.code, ())
