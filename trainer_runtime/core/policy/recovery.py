"""What follows from an attempt's end. Pure: the supervisor asks, then acts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from trainer_runtime.core.config import RecoveryConfig, RunConfig
from trainer_runtime.core.policy.endings import Ending, EndReason
from trainer_runtime.core.policy.intervention import (
    DETERMINISTIC,
    OUT_OF_MEMORY,
    RULES,
    Remedy,
    first_cause,
    remedy_of,
)
from trainer_runtime.core.policy.missed_phase import missed_phase
from trainer_runtime.core.policy.rehearsal import step_to_repeat_from
from trainer_runtime.core.policy.skipped_data import is_skipped, skip_to_after
from trainer_runtime.core.protocol.duration import parse_duration
from trainer_runtime.core.protocol.figures import spoken_duration
from trainer_runtime.core.protocol.finding import Finding
from trainer_runtime.core.protocol.journal import NEEDS_OPERATOR, AttemptRecord
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.core.protocol.states import PlacementState

FIRST_BACKOFF_S = 5.0
LONGEST_BACKOFF_S = 300.0


class Action(str, Enum):
    COMPLETE = "complete"
    STOP = "stop"
    FAIL = "fail"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do next. `resume_from` says where a restart resumes: `latest`, `scratch`, or at a
    step and no later; `set` what it changes, `skip` which data it leaves out, `by` the rule and the
    patch that chose so. `why` is what a restart is for, where that isn't `reason`."""

    action: Action
    reason: str
    detail: str
    delay_s: float = 0.0
    resume_from: str | int = "latest"
    skip: Mapping[str, int] | None = None
    set: Mapping[str, object] = field(default_factory=dict)
    by: str | None = None
    why: str | None = None

    @property
    def state(self) -> PlacementState:
        """Where the run stands from then on."""
        return _STATE_AFTER[self.action]


_STATE_AFTER = {
    Action.COMPLETE: PlacementState.COMPLETED,
    Action.STOP: PlacementState.STOPPED,
    Action.FAIL: PlacementState.FAILED,
    Action.RESTART: PlacementState.RECOVERING,
}


def decide(
    ending: Ending,
    attempts: Sequence[AttemptRecord],
    progress: Progress,
    config: RunConfig,
    findings: Sequence[Finding] = (),
) -> Decision:
    """What follows from the end of the newest of `attempts` (all of them ended).

    `findings`: what the journal reports of it.
    """
    if ending.reason is EndReason.SESSION_OVER:
        return Decision(Action.RESTART, ending.reason.value, ending.detail)
    if ending.reason is EndReason.PHASE_MISSED:
        return _after_missed_phase(ending, progress, config)
    if config.rehearsal is not None and ending.reason not in _FROM_OUTSIDE:
        return _after_rehearsal(ending, attempts, progress, config, findings)
    remedy = _remedy(ending, progress, attempts, config, findings)
    if remedy is None:
        refused = _refused(ending, config.recovery, findings, progress)
        if refused is not None:
            return refused
    spent, allowed = restarts_spent(attempts), config.recovery.max_restarts
    if spent >= allowed:
        detail = f"{ending.detail}; {spent} restarts without a newer verified checkpoint"
        return Decision(Action.FAIL, "max_restarts", detail)
    decision = Decision(Action.RESTART, ending.reason.value, ending.detail, backoff_s(spent))
    return decision if remedy is None else _apply_remedy(remedy, decision, config.recovery)


def _after_rehearsal(
    ending: Ending,
    attempts: Sequence[AttemptRecord],
    progress: Progress,
    config: RunConfig,
    findings: Sequence[Finding],
) -> Decision:
    """The steps behind a checkpoint once more in a new process, once; nothing else is cured."""
    repeats = ending.reason in (EndReason.COMPLETED, EndReason.REHEARSED_KILL)
    step = step_to_repeat_from(progress) if repeats else None
    if step is not None and len(attempts) == 1:
        reason = EndReason.REHEARSED_KILL.value
        return Decision(Action.RESTART, reason, ending.detail, resume_from=step)
    refused = _refused(ending, config.recovery, findings, progress)
    return refused or Decision(Action.FAIL, ending.reason.value, ending.detail)


def _after_missed_phase(ending: Ending, progress: Progress, config: RunConfig) -> Decision:
    """The decision by `on_miss`: more steps, the phase once more at half the rate, or the end."""
    reason, detail = ending.reason.value, ending.detail
    missed = missed_phase(config, progress.missed)
    if missed is None:
        return Decision(Action.STOP, reason, detail)
    return Decision(
        Action.RESTART,
        reason,
        f"{detail}: {missed.what}",
        resume_from=missed.resume_from,
        set=missed.set,
        by=f"policy:on_miss {missed.rule}",
    )


def _remedy(
    ending: Ending,
    progress: Progress,
    attempts: Sequence[AttemptRecord],
    config: RunConfig,
    findings: Sequence[Finding],
) -> Remedy | None:
    """What a restart is to change, by the rule for what was found."""
    recovery = config.recovery
    if ending.reason is EndReason.GUARD and recovery.on_nan != "stop":
        skip = skip_to_after(progress, attempts[-1].verified_step or 0, config)
        if is_skipped(config, skip):
            return None
        return Remedy(ending.reason.value, "policy:on_nan rewind_skip_data", skip=skip)
    if ending.reason in (EndReason.LOSS_SPIKE, EndReason.DIVERGENCE):
        code = ending.reason.value
        spike = next((finding for finding in findings if finding.code == code), None)
        chosen = recovery.on_spike
        return remedy_of(spike, config, "on_spike", chosen) if spike is not None else None
    out_of_memory = first_cause(findings, OUT_OF_MEMORY)
    if ending.reason in _CRASHES and out_of_memory is not None:
        is_wanted = recovery.on_oom == "patch"
        return remedy_of(out_of_memory, config, "on_oom") if is_wanted else None
    return None


def _refused(
    ending: Ending, recovery: RecoveryConfig, findings: Sequence[Finding], progress: Progress
) -> Decision | None:
    """The decision where nothing is tried again as it was."""
    if ending.reason in _FIXED:
        return Decision(_FIXED[ending.reason], ending.reason.value, ending.detail)
    if ending.reason is EndReason.GUARD and recovery.on_nan != "stop":
        detail = f"{ending.detail}, again: the data before it is left out already"
        return Decision(Action.FAIL, "nan", detail)
    rule = _STOPPED_BY.get(ending.reason)
    if rule is not None and str(recovery.rule(rule)).endswith("stop"):
        reason = "nan" if ending.reason is EndReason.GUARD else ending.reason.value
        detail = f"{ending.detail}; recovery.{rule} is {recovery.rule(rule)}"
        return Decision(Action.FAIL, reason, detail)
    if ending.reason in _CRASHES:
        cause = first_cause(findings, OUT_OF_MEMORY)
        if cause is not None and recovery.on_oom == "stop":
            return Decision(Action.FAIL, cause.code, f"{ending.detail}; recovery.on_oom is stop")
        # A step that once fitted into memory may fit again, as others' memory comes and goes.
        cause = first_cause(findings, DETERMINISTIC) or (cause if not progress.steps_done else None)
        if cause is not None:
            detail = f"{cause.code}: {cause.explanation}"
            return Decision(Action.FAIL, NEEDS_OPERATOR, detail)
    if ending.reason is EndReason.FAILED_BEFORE_FIRST_STEP:
        return Decision(Action.FAIL, ending.reason.value, ending.detail)
    if recovery.on_crash == "stop" and rule is None:
        return Decision(Action.FAIL, ending.reason.value, "recovery.on_crash is stop")
    return None


def _apply_remedy(remedy: Remedy, decision: Decision, recovery: RecoveryConfig) -> Decision:
    """The decision with the remedy's changes, after the operator's time to choose another."""
    decision = replace(
        decision,
        resume_from=remedy.resume_from,
        skip=remedy.skip,
        set=remedy.set,
        by=remedy.by,
        why=remedy.code,
    )
    within = recovery.decide_within
    if within is None:
        return decision
    wait_s = parse_duration(within)
    detail = f"{remedy.code}: {remedy.by} in {spoken_duration(wait_s)} unless somebody chooses else"
    return replace(
        decision, reason=NEEDS_OPERATOR, detail=detail, delay_s=max(wait_s, decision.delay_s)
    )


def restarts_spent(attempts: Sequence[AttemptRecord]) -> int:
    """Restarts of the newest generation since a checkpoint newer than all before was verified.

    A start after a session's end is expected and does not count; a missed phase has bounds of its
    own.
    """
    spent, newest = -1, -1  # the first attempt of a generation is not a restart
    for attempt in attempts:
        if attempt.generation != attempts[-1].generation:
            continue
        spent += attempt.reason not in (EndReason.SESSION_OVER, EndReason.PHASE_MISSED)
        verified = -1 if attempt.verified_step is None else attempt.verified_step
        if verified > newest:
            spent, newest = 0, verified
    return spent


def backoff_s(spent: int) -> float:
    """No wait before the first restart, then 5 s, doubled each time, 300 s at most."""
    return 0.0 if spent <= 0 else min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** (spent - 1))


_FIXED = {
    EndReason.COMPLETED: Action.COMPLETE,
    EndReason.REHEARSED: Action.COMPLETE,
    EndReason.STOPPED: Action.STOP,
    EndReason.TIME_LIMIT: Action.STOP,
    EndReason.LEASE_OVER: Action.STOP,
    EndReason.UNUSABLE: Action.FAIL,
    EndReason.ENDED_UNSEEN: Action.STOP,
    EndReason.FAILED_UNSEEN: Action.FAIL,
}
_STOPPED_BY = {EndReason.GUARD: "on_nan", **{EndReason(why): RULES[why] for why in RULES}}
# What ends a rehearsal, too, and says nothing of the training.
_FROM_OUTSIDE = frozenset({EndReason.PREEMPTED, EndReason.REBOOT, EndReason.NODE_LOST})
_CRASHES = frozenset(
    {
        EndReason.CRASHED,
        EndReason.KILLED,
        EndReason.FAILED_BEFORE_FIRST_STEP,
        EndReason.EXITED_EARLY,
    }
)
