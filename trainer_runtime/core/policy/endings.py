"""How an attempt ended, by what its process, its events and the supervisor say of it. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import Enum

from trainer_runtime.core.policy.intervention import (
    DIVERGENCE,
    INTERVENTIONS,
    SESSION_OVER,
    SPIKE,
    STALL,
)
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.core.protocol.states import REHEARSED, REHEARSED_KILL

_KILL = 9
# Who is ended for these is killed, and not asked.
_KILLED_FOR = INTERVENTIONS | {REHEARSED_KILL}


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
    REHEARSED = REHEARSED
    REHEARSED_KILL = REHEARSED_KILL
    UNUSABLE = "unusable"
    FAILED_BEFORE_FIRST_STEP = "failed_before_first_step"
    CRASHED = "crashed"
    KILLED = "killed"
    REBOOT = "reboot"
    NODE_LOST = "node_lost"
    EXITED_EARLY = "exited_early"
    ENDED_UNSEEN = "ended_unseen"
    FAILED_UNSEEN = "failed_unseen"


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
        asked = terminated_why not in _KILLED_FOR and end.signal == _KILL and end.prepared
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
