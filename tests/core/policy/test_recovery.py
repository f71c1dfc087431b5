from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.core.journal_records import (
    EventBody,
    attempt_ended,
    attempt_starting,
    kept,
    metric,
    progress,
    record,
    started,
)

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.diagnosis.signatures import CATALOGUE
from trainer_runtime.core.policy.endings import Ending, EndReason, Exit, classify
from trainer_runtime.core.policy.intervention import DETERMINISTIC, intervention
from trainer_runtime.core.policy.recovery import Action, Decision, backoff_s, decide, restarts_spent
from trainer_runtime.core.protocol.finding import Finding, Patch
from trainer_runtime.core.protocol.journal import AttemptRecord
from trainer_runtime.core.protocol.progress import Progress

RUNNING = progress(1, started(), metric(1), metric(2))
CODES = {signature.code for signature in CATALOGUE}
DONE = progress(1, started(), metric(100), *kept(100), ("completed", {"step": 100}))


def config(**recovery: Any) -> dict[str, Any]:
    return {
        "recovery": {
            "max_restarts": 3,
            "on_crash": "resume",
            "on_nan": "rewind_skip_data",
            **recovery,
        },
        "derived": {"sequences_per_step": 8},
    }


def attempts(*verified_steps: int | None, generation: int = 1) -> list[AttemptRecord]:
    """Attempts that crashed, with the newest verified checkpoint at each one's end."""
    bodies: list[EventBody] = []
    for number, step in enumerate(verified_steps, 1):
        bodies.append(attempt_starting(number, generation))
        bodies.append(attempt_ended(number, "crashed", verified_step=step))
    return record(*bodies).attempts


def decided(reason: EndReason, *verified_steps: int | None, **recovery: Any) -> Decision:
    ended = attempts(*(verified_steps or (None,)))
    return decide(
        Ending(reason, "how it ended"), ended, RUNNING, RunConfig.parse(config(**recovery))
    )


@pytest.mark.parametrize(
    ("end", "found", "reason"),
    [
        (Exit(0, None), DONE, EndReason.COMPLETED),
        (Exit(0, None), RUNNING, EndReason.EXITED_EARLY),
        (Exit(None, None), DONE, EndReason.COMPLETED),
        (Exit(1, None), DONE, EndReason.CRASHED),
        (Exit(None, 9), DONE, EndReason.KILLED),
        (Exit(75, None), RUNNING, EndReason.PREEMPTED),
        (Exit(76, None), RUNNING, EndReason.GUARD),
        (Exit(77, None), RUNNING, EndReason.UNUSABLE),
        (Exit(77, None), progress(1), EndReason.UNUSABLE),
        (Exit(1, None), RUNNING, EndReason.CRASHED),
        (Exit(1, None), progress(1, started(40)), EndReason.FAILED_BEFORE_FIRST_STEP),
        (Exit(127, None), progress(1), EndReason.FAILED_BEFORE_FIRST_STEP),
        (Exit(None, 9), progress(1), EndReason.KILLED),
        (Exit(None, 11), progress(1), EndReason.KILLED),
        (Exit(1, None, prepared=False), progress(1), EndReason.CRASHED),
        (Exit(77, None, prepared=False), progress(1), EndReason.UNUSABLE),
        (Exit(None, None), RUNNING, EndReason.CRASHED),
        (Exit(None, None, rebooted=True), RUNNING, EndReason.REBOOT),
    ],
)
def test_an_end_is_named_after_what_is_known_of_it(
    end: Exit, found: Progress, reason: EndReason
) -> None:
    assert classify(end, found, None).reason is reason


def test_an_early_end_says_at_which_step() -> None:
    early = progress(1, started(), metric(50))
    assert "exit code 0 at step 50 of" in classify(Exit(0, None), early, None).detail


def test_an_unseen_end_without_the_last_checkpoint_is_not_complete() -> None:
    unsaved = progress(1, started(), metric(100), *kept(50), ("completed", {"step": 100}))
    assert classify(Exit(None, None), unsaved, None).reason is EndReason.CRASHED


@pytest.mark.parametrize("why", ["stopped", "time_limit"])
@pytest.mark.parametrize("end", [Exit(75, None), Exit(None, 9), Exit(1, None), Exit(None, None)])
def test_what_was_ended_on_purpose_is_never_taken_for_a_crash(end: Exit, why: str) -> None:
    assert classify(end, RUNNING, why).reason.value == why


def test_a_run_that_completed_before_the_stop_reached_it_has_completed() -> None:
    assert classify(Exit(0, None), DONE, "stopped").reason is EndReason.COMPLETED


@pytest.mark.parametrize("number", [9, 15])
def test_a_completed_run_that_the_stop_kills_while_it_leaves_has_completed(number: int) -> None:
    assert classify(Exit(None, number), DONE, "stopped").reason is EndReason.COMPLETED
    unsaved = progress(1, started(), metric(100), *kept(50), ("completed", {"step": 100}))
    assert classify(Exit(None, number), unsaved, "stopped").reason is EndReason.STOPPED


@pytest.mark.parametrize(
    ("reason", "action"),
    [
        (EndReason.COMPLETED, Action.COMPLETE),
        (EndReason.STOPPED, Action.STOP),
        (EndReason.TIME_LIMIT, Action.STOP),
        (EndReason.UNUSABLE, Action.FAIL),
        (EndReason.FAILED_BEFORE_FIRST_STEP, Action.FAIL),
        (EndReason.CRASHED, Action.RESTART),
        (EndReason.KILLED, Action.RESTART),
        (EndReason.REBOOT, Action.RESTART),
        (EndReason.PREEMPTED, Action.RESTART),
        (EndReason.EXITED_EARLY, Action.RESTART),
        (EndReason.GUARD, Action.RESTART),
    ],
)
def test_only_what_may_go_better_next_time_is_tried_again(
    reason: EndReason, action: Action
) -> None:
    assert decided(reason).action is action


def test_every_reason_has_a_decision() -> None:
    assert all(decided(reason).action in Action for reason in EndReason)


def test_restarts_without_a_newer_checkpoint_are_bounded_and_ever_later() -> None:
    delays = [decided(EndReason.KILLED, *[10] * lives).delay_s for lives in (1, 2, 3)]
    assert delays == [0.0, 5.0, 10.0]
    last = decided(EndReason.KILLED, *[10] * 4)
    assert (last.action, last.reason) == (Action.FAIL, "max_restarts")
    assert "3 restarts" in last.detail


def test_no_restart_is_made_where_none_is_allowed() -> None:
    assert decided(EndReason.KILLED, None, max_restarts=0).reason == "max_restarts"


def test_a_newer_checkpoint_gives_the_restarts_back() -> None:
    assert restarts_spent(attempts(20, 20, 20, 40)) == 0
    assert restarts_spent(attempts(None, None, None)) == 2
    assert restarts_spent(attempts(None, 20, 20)) == 1


def test_a_resume_begins_a_new_count() -> None:
    worn_out = attempts(20, 20, 20, 20)
    resumed = attempts(20, generation=2)
    assert restarts_spent([*worn_out, *resumed]) == 0


def test_waits_are_bounded() -> None:
    assert [backoff_s(spent) for spent in (0, 1, 2, 3, 4, 9, 500)] == [0, 5, 10, 20, 40, 300, 300]


def test_recovery_can_be_declined() -> None:
    assert decided(EndReason.KILLED, on_crash="stop").action is Action.FAIL
    assert decided(EndReason.GUARD, on_crash="stop").action is Action.RESTART
    stopped = decided(EndReason.GUARD, on_nan="stop")
    assert (stopped.action, stopped.reason) == (Action.FAIL, "nan")


def test_after_a_loss_that_is_no_number_the_data_up_to_it_is_left_out() -> None:
    warning = ("warning", {"code": "nan_loss", "step": 47, "message": "NaN"})
    found = progress(1, started(), metric(47), warning)
    ending = classify(Exit(76, None), found, None)
    assert ending.detail == "nan_loss at step 47"
    decision = decide(ending, attempts(40), found, RunConfig.parse(config()))
    assert decision.skip == {"at_step": 40, "sequences": 7 * 8}


def test_without_a_checkpoint_the_data_is_left_out_from_the_start() -> None:
    warning = ("warning", {"code": "nan_loss", "step": 3, "message": "NaN"})
    found = progress(1, started(), metric(3), warning)
    decision = decide(
        classify(Exit(76, None), found, None), attempts(None), found, RunConfig.parse(config())
    )
    assert decision.skip == {"at_step": 0, "sequences": 3 * 8}


def test_a_guard_that_left_no_warning_is_counted_from_the_last_step() -> None:
    ending = classify(Exit(76, None), RUNNING, None)
    assert ending.detail == "ended by the guard"
    decision = decide(ending, attempts(None), RUNNING, RunConfig.parse(config()))
    assert decision.skip == {"at_step": 0, "sequences": 2 * 8}


def found(code: str, *, confidence: float = 0.95, patches: tuple[Patch, ...] = ()) -> Finding:
    words = ("what the log said",)
    return Finding("0" * 8, code, "critical", confidence, 2, words, "What it is.", patches)


HALVED = Patch("halve", {"optimizer.lr": 0.5}, {"optimizer.lr": 1.0}, "It helps.")


def decided_on(
    finding: Finding, reason: EndReason = EndReason.CRASHED, **recovery: Any
) -> Decision:
    ending = Ending(reason, "how it ended")
    settings = config(**recovery) | {"optimizer": {"lr": 1.0, "betas": [0.9, 0.95]}}
    return decide(ending, attempts(None), RUNNING, RunConfig.parse(settings), [finding])


def test_a_patch_is_applied_where_it_changes_only_what_the_box_may_change() -> None:
    oom = found("cuda_oom", patches=(HALVED,))
    decision = decided_on(oom, on_oom="patch")
    assert (decision.action, decision.set) == (Action.RESTART, {"optimizer.lr": 0.5})
    assert (decision.why, decision.by) == ("cuda_oom", "policy:on_oom halve")
    assert decided_on(oom, on_oom="stop").action is Action.FAIL
    assert not decided_on(oom, on_oom=None).set


@pytest.mark.parametrize(
    "patch",
    [
        replace(HALVED, set={"optimizer.betas": [0.9, 0.99]}),
        replace(HALVED, set={"optimizer.lr": 0.5, "steps": 10}),
        replace(HALVED, expected={"optimizer.lr": 2.0}),
        replace(HALVED, expected={"optimizer.rate": 1.0}),
        replace(HALVED, keeps_batch=False),
    ],
)
def test_any_other_patch_is_left_to_the_operator(patch: Patch) -> None:
    assert not decided_on(found("cuda_oom", patches=(patch,)), on_oom="patch").set


def test_a_guess_changes_nothing() -> None:
    guess = found("host_oom", confidence=0.6, patches=(HALVED,))
    decision = decided_on(guess, EndReason.KILLED, on_oom="patch")
    assert (decision.action, decision.set) == (Action.RESTART, {})
    assert decided_on(guess, EndReason.KILLED, on_oom="stop").action is Action.RESTART


@pytest.mark.parametrize("code", sorted(DETERMINISTIC))
def test_what_every_try_would_meet_again_needs_the_operator(code: str) -> None:
    decision = decided_on(found(code))
    assert (decision.action, decision.reason) == (Action.FAIL, "needs_operator")
    assert decision.detail == f"{code}: What it is."
    assert code in CODES


def test_a_patched_run_too_has_only_so_many_restarts() -> None:
    oom = found("cuda_oom", patches=(HALVED,))
    settings = config(on_oom="patch") | {"optimizer": {"lr": 1.0}}
    ending = Ending(EndReason.CRASHED, "exit code 1")
    last = decide(ending, attempts(10, 10, 10, 10), RUNNING, RunConfig.parse(settings), [oom])
    assert (last.action, last.reason) == (Action.FAIL, "max_restarts")


def test_a_running_attempt_is_ended_only_for_what_is_critical_and_lasts() -> None:
    def wanted(finding: Finding, **recovery: Any) -> str | None:
        return intervention([finding], RunConfig.parse(config(**recovery)))

    stall, spike = found("stall"), found("loss_spike", patches=(replace(HALVED, set={}),))
    assert wanted(stall, on_stall="stacks_restart") == "stall"
    assert wanted(stall) is None
    assert wanted(replace(stall, severity="warning"), on_stall="stacks_restart") is None
    assert wanted(spike, on_spike="warn") is None
    assert wanted(spike, on_spike="stop") == "loss_spike"
    assert wanted(spike, on_spike="rewind_skip_data") is None, "it has no such patch"


def test_an_end_while_preparing_names_the_step() -> None:
    nothing = progress(1)
    failed = classify(Exit(77, None, prepared=False, step="packages"), nothing, None)
    assert failed == Ending(EndReason.UNUSABLE, "preparing failed at the step: packages")
    crashed = classify(Exit(1, None, prepared=False, step="environment"), nothing, None)
    assert crashed.detail == "exit code 1 while preparing, at the step: environment"


def test_an_end_with_the_session_that_nobody_saw_is_said_to_be_that() -> None:
    assert classify(Exit(None, None), RUNNING, "session_over").detail == "it ended with its session"
