"""How an attempt ended, and what follows from it. Pure: the supervisor asks, then acts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from trainer_runtime.core.journal import AttemptRecord
from trainer_runtime.core.progress import Progress
from trainer_runtime.core.protocol import ExitCode

FIRST_BACKOFF_S = 5.0
LONGEST_BACKOFF_S = 300.0


class EndReason(str, Enum):
    """Why an attempt is over."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    TIME_LIMIT = "time_limit"
    PREEMPTED = "preempted"
    GUARD = "guard"
    UNUSABLE = "unusable"
    FAILED_BEFORE_FIRST_STEP = "failed_before_first_step"
    CRASHED = "crashed"
    KILLED = "killed"
    REBOOT = "reboot"
    EXITED_EARLY = "exited_early"


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
    step of that it was (a name of core/setup_log.py).
    """

    code: int | None
    signal: int | None
    rebooted: bool = False
    prepared: bool = True
    step: str | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    reason: EndReason
    detail: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do next. `mode` and `step` say where a restart resumes; `set` what it changes."""

    action: Action
    reason: str
    detail: str
    delay_s: float = 0.0
    mode: str = "latest"
    skip: Mapping[str, int] | None = None


def classify(end: Exit, progress: Progress, terminated_why: str | None) -> Ending:
    """Name the end of an attempt.

    `terminated_why`: what the supervisor ended it for (`stopped`, `time_limit`), None if it didn't.
    A process whose end nobody saw counts as complete only with a `completed` event and a verified
    last checkpoint.
    """
    if progress.completed and _end_confirmed(end, progress):
        return Ending(EndReason.COMPLETED, f"step {progress.step} of {progress.target_step}")
    if terminated_why is not None:
        saved = end.code == ExitCode.SAVED_ON_SIGTERM
        return Ending(EndReason(terminated_why), "saved and ended" if saved else _how(end))
    if end.rebooted:
        return Ending(EndReason.REBOOT, "the machine was restarted while the trainer ran")
    if end.code == ExitCode.UNUSABLE:
        return Ending(EndReason.UNUSABLE, _unusable(end))
    if end.code == ExitCode.SAVED_ON_SIGTERM:
        return Ending(EndReason.PREEMPTED, "SIGTERM from outside; saved and ended")
    if end.code == ExitCode.GUARD:
        return Ending(EndReason.GUARD, _guard_detail(progress))
    if end.code == 0:
        return Ending(EndReason.EXITED_EARLY, "exit code 0 without having completed")
    if end.signal is not None:
        return Ending(EndReason.KILLED, _how(end))
    if end.code is not None and progress.steps_done == 0 and end.prepared:
        return Ending(EndReason.FAILED_BEFORE_FIRST_STEP, _how(end))
    return Ending(EndReason.CRASHED, _how(end))


def decide(
    ending: Ending,
    attempts: Sequence[AttemptRecord],
    progress: Progress,
    config: Mapping[str, Any],
) -> Decision:
    """What follows from the end of the newest of `attempts` (all of them ended)."""
    recovery = config["recovery"]
    fixed = _FIXED.get(ending.reason)
    if fixed is not None:
        return Decision(fixed, ending.reason.value, ending.detail)
    if ending.reason is EndReason.GUARD and recovery.get("on_nan") == "stop":
        return Decision(Action.FAIL, "nan", f"{ending.detail}; recovery.on_nan is stop")
    if recovery.get("on_crash") == "stop" and ending.reason is not EndReason.GUARD:
        return Decision(Action.FAIL, ending.reason.value, "recovery.on_crash is stop")
    spent, allowed = restarts_spent(attempts), int(recovery["max_restarts"])
    if spent >= allowed:
        detail = f"{ending.detail}; {spent} restarts without a newer verified checkpoint"
        return Decision(Action.FAIL, "max_restarts", detail)
    skip = None
    if ending.reason is EndReason.GUARD:
        skip = _skip_to_after(progress, attempts[-1].verified_step or 0, config)
    return Decision(
        Action.RESTART, ending.reason.value, ending.detail, backoff_s(spent), "latest", skip
    )


def restarts_spent(attempts: Sequence[AttemptRecord]) -> int:
    """Restarts of the newest generation since a checkpoint newer than all before was verified."""
    spent, newest = -1, -1  # the first attempt of a generation is no restart
    for attempt in attempts:
        if attempt.generation != attempts[-1].generation:
            continue
        spent += 1
        verified = -1 if attempt.verified_step is None else attempt.verified_step
        if verified > newest:
            spent, newest = 0, verified
    return spent


def backoff_s(spent: int) -> float:
    """No wait before the first restart, then 5 s, doubled each time, 300 s at most."""
    return 0.0 if spent == 0 else min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** (spent - 1))


_FIXED = {
    EndReason.COMPLETED: Action.COMPLETE,
    EndReason.STOPPED: Action.STOP,
    EndReason.TIME_LIMIT: Action.STOP,
    EndReason.UNUSABLE: Action.FAIL,
    EndReason.FAILED_BEFORE_FIRST_STEP: Action.FAIL,
}


def _end_confirmed(end: Exit, progress: Progress) -> bool:
    if end.code is not None or end.signal is not None:
        return end.code == ExitCode.COMPLETE
    return progress.target_step is not None and progress.verified_step == progress.target_step


def _skip_to_after(
    progress: Progress, restart_step: int, config: Mapping[str, Any]
) -> Mapping[str, int]:
    bad_step = max(
        (int(warning["step"]) for warning in progress.warnings if warning.get("step")),
        default=progress.step,
    )
    steps = max(1, bad_step - restart_step)
    sequences = steps * int(config["derived"]["sequences_per_step"])
    return {"at_step": restart_step, "sequences": sequences}


def _guard_detail(progress: Progress) -> str:
    last = progress.warnings[-1] if progress.warnings else None
    if last is None:
        return "ended by the guard"
    return f"{last['code']} at step {last['step']}"


def _unusable(end: Exit) -> str:
    if end.prepared or end.step is None:
        return "the configuration or the data can't be used"
    return f"preparing failed at the step: {end.step}"


def _how(end: Exit) -> str:
    during = f" while preparing, at the step: {end.step}" if end.step is not None else ""
    if end.signal is not None:
        return f"ended by signal {end.signal}{during}"
    if end.code is not None:
        return f"exit code {end.code}{during}"
    return f"gone, and nobody saw its end{during}"
