"""How an attempt ended, and what follows from it. Pure: the supervisor asks, then acts."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from trainer_runtime.core.config import RecoveryConfig, RunConfig
from trainer_runtime.core.policy.intervention import (
    DETERMINISTIC,
    DIVERGENCE,
    INTERVENTIONS,
    OUT_OF_MEMORY,
    RULES,
    SESSION_OVER,
    SPIKE,
    STALL,
    Remedy,
    first_cause,
    remedy_of,
)
from trainer_runtime.core.policy.missed_phase import missed_phase
from trainer_runtime.core.policy.skipped_data import is_skipped, skip_to_after
from trainer_runtime.core.protocol.duration import parse_duration
from trainer_runtime.core.protocol.figures import spoken_duration
from trainer_runtime.core.protocol.finding import Finding
from trainer_runtime.core.protocol.journal import NEEDS_OPERATOR, AttemptRecord
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.core.protocol.states import PlacementState

FIRST_BACKOFF_S = 5.0
LONGEST_BACKOFF_S = 300.0


class EndReason(str, Enum):
    """Why an attempt is over."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    TIME_LIMIT = "time_limit"
    LEASE_OVER = "lease_over"
    PREEMPTED = "preempted"
    SESSION_OVER = SESSION_OVER
    GUARD = "guard"
    STALL = STALL
    LOSS_SPIKE = SPIKE
    DIVERGENCE = DIVERGENCE
    PHASE_MISSED = "phase_missed"
    UNUSABLE = "unusable"
    FAILED_BEFORE_FIRST_STEP = "failed_before_first_step"
    CRASHED = "crashed"
    KILLED = "killed"
    REBOOT = "reboot"
    NODE_LOST = "node_lost"
    EXITED_EARLY = "exited_early"
    ENDED_UNSEEN = "ended_unseen"
    FAILED_UNSEEN = "failed_unseen"


class Action(str, Enum):
    COMPLETE = "complete"
    STOP = "stop"
    FAIL = "fail"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Exit:
    """How the trainer's process ended, as far as it is known.

    `code` and `signal` are None where nobody saw the end (hold was killed too). `prepared` is
    False where the attempt ended while its data or environment were being prepared, `step` which
    step of that it was (a name of core/environment/setup_log.py). `unseen`: how a training ended
    that others had started and that was only watched, in words; `failure`: what its log says went
    wrong. `lost`: which of several nodes is lost; `where`: what is known of that, or the rank or
    node that failed first; `elsewhere`: that is not this one.
    """

    code: int | None
    signal: int | None
    rebooted: bool = False
    prepared: bool = True
    step: str | None = None
    unseen: str | None = None
    failure: str | None = None
    lost: str | None = None
    where: str | None = None
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    reason: EndReason
    detail: str


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


def classify(end: Exit, progress: Progress, terminated_why: str | None) -> Ending:
    """Name the end of an attempt.

    `terminated_why`: what the supervisor ended it for (such as `time_limit`), None if it didn't.
    A process whose end nobody saw counts as complete only with a `completed` event and a verified
    last checkpoint.
    """
    if end.unseen is not None:
        return _classify_unseen(end, progress, terminated_why)
    return _classify_seen(end, progress, terminated_why)


def _classify_seen(end: Exit, progress: Progress, terminated_why: str | None) -> Ending:
    if progress.completed and _end_confirmed(end, progress, terminated_why):
        target = progress.target_step or progress.step
        early = "" if progress.stopped_early is None else f", {progress.stopped_early}"
        return Ending(EndReason.COMPLETED, f"step {progress.step} of {target}{early}")
    if terminated_why is not None:
        saved = end.code == ExitCode.SAVED_ON_SIGTERM
        asked = terminated_why not in INTERVENTIONS and end.signal == _KILL and end.prepared
        how = f"{_how(end)}: it did not end when it was asked to" if asked else _how(end)
        if terminated_why == SESSION_OVER and end.code is None and end.signal is None:
            how = "it ended with its session"
        return Ending(EndReason(terminated_why), "saved and ended" if saved else how)
    if end.lost is not None or end.rebooted:
        return _classify_lost(end)
    if (ending := _by_own_code(end, progress)) is not None:
        return ending
    if end.code == 0:
        return Ending(EndReason.EXITED_EARLY, _early(progress))
    if end.signal is not None:
        return Ending(EndReason.KILLED, _how(end))
    if end.code is not None and progress.steps_done == 0 and end.prepared:
        return Ending(EndReason.FAILED_BEFORE_FIRST_STEP, _how(end))
    return Ending(EndReason.CRASHED, _how(end))


def _by_own_code(end: Exit, progress: Progress) -> Ending | None:
    """The ending that the trainer has named by an exit code of ours."""
    if end.code == ExitCode.UNUSABLE:
        return Ending(EndReason.UNUSABLE, _unusable(end))
    if end.code == ExitCode.SAVED_ON_SIGTERM:
        return Ending(EndReason.PREEMPTED, "SIGTERM from outside; saved and ended")
    if end.code == ExitCode.PHASE_MISSED:
        verdict = progress.verdicts.get(progress.missed or "", "missed")
        return Ending(EndReason.PHASE_MISSED, f"phase {progress.missed}, {verdict}")
    if end.code == ExitCode.GUARD:
        return Ending(EndReason.GUARD, _guard_detail(progress))
    return None


def _early(progress: Progress) -> str:
    target = progress.target_step
    where = "" if target is None else f" at step {progress.step} of {target},"
    return f"exit code 0{where} without having completed"


def _classify_lost(end: Exit) -> Ending:
    if end.lost is not None:
        return Ending(EndReason.NODE_LOST, f"node {end.lost} is lost: {end.where}")
    return Ending(EndReason.REBOOT, "the machine was restarted while the trainer ran")


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


_KILL = 9
_FIXED = {
    EndReason.COMPLETED: Action.COMPLETE,
    EndReason.STOPPED: Action.STOP,
    EndReason.TIME_LIMIT: Action.STOP,
    EndReason.LEASE_OVER: Action.STOP,
    EndReason.UNUSABLE: Action.FAIL,
    EndReason.ENDED_UNSEEN: Action.STOP,
    EndReason.FAILED_UNSEEN: Action.FAIL,
}
_STOPPED_BY = {EndReason.GUARD: "on_nan", **{EndReason(why): RULES[why] for why in RULES}}
_CRASHES = frozenset(
    {
        EndReason.CRASHED,
        EndReason.KILLED,
        EndReason.FAILED_BEFORE_FIRST_STEP,
        EndReason.EXITED_EARLY,
    }
)


def _classify_unseen(end: Exit, progress: Progress, terminated_why: str | None) -> Ending:
    """The ending of an attached training, known from its log alone."""
    if terminated_why is not None:
        return Ending(EndReason(terminated_why), "watched no longer; the training was left alone")
    if end.failure is not None:
        return Ending(EndReason.FAILED_UNSEEN, end.failure)
    target = progress.target_step
    # Where steps are counted from 0 the last one is called one less.
    if progress.completed or (target is not None and progress.step >= target - 1):
        return Ending(EndReason.COMPLETED, f"step {progress.step} of {target or progress.step}")
    return Ending(EndReason.ENDED_UNSEEN, end.unseen or "")


def _end_confirmed(end: Exit, progress: Progress, terminated_why: str | None) -> bool:
    # Whom our own signal killed after its last event had nothing left to do but to leave.
    ended_leaving = terminated_why is not None and end.signal is not None
    if not ended_leaving and (end.code is not None or end.signal is not None):
        return end.code == ExitCode.COMPLETE
    return progress.target_step is not None and progress.verified_step == progress.target_step


def _guard_detail(progress: Progress) -> str:
    last = progress.warnings[-1] if progress.warnings else None
    if last is None:
        return "ended by the guard"
    return f"{last.code} at step {last.step}"


def _unusable(end: Exit) -> str:
    if end.prepared or end.step is None:
        return "the configuration or the data can't be used"
    return f"preparing failed at the step: {end.step}"


def _how(end: Exit) -> str:
    during = f" while preparing, at the step: {end.step}" if end.step is not None else ""
    during += f", first {end.where}" if end.where is not None else ""
    if end.signal is not None:
        names = {known_signal.value: f" ({known_signal.name})" for known_signal in signal.Signals}
        return f"ended by signal {end.signal}{names.get(end.signal, '')}{during}"
    if end.code is not None:
        return f"exit code {end.code}{during}"
    return f"its process is gone, and so is what watched it: no exit code{during}"
