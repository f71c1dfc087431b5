"""The next step for a finding depends on whether the run is still running."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.core.journal_records import EventBody, attempt_ended, attempt_starting, record, state
from support.host.scripted_processes import CONFIG
from support.runs.planted_runs import HALVED, HALVES_LR, REWINDS, finding

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.progress import Progress, SavedCheckpoint
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.runs.diagnose import diagnosis_of
from trainmaster.runs.diagnosis.diagnose_run import open_findings
from trainmaster.runs.status.next_step import next_step
from trainmaster.store.run import Run
from trainmaster.sync.run_view import RunView

_RUNNING = (attempt_starting(1), state("preparing"), state("running"))
_RECOVERING = (*_RUNNING, state("recovering", reason="crashed"))
_FAILED = (*_RUNNING, state("failed", reason="crashed"))
_COMPLETED = (*_RUNNING, state("completed", reason="completed"))
_STOPPED = (*_RUNNING, state("stopped"))
_SPIKE: dict[str, Any] = {"code": "loss_spike", "severity": "warning"}


def next_step_of(*journal: EventBody) -> str:
    """The next step of a run whose journal this is."""
    view = view_of(*journal)
    return next_step(view, open_findings(view))


def view_of(*journal: EventBody) -> RunView:
    run = Run("r-abcdef", "r", 1.0, "local", "", CONFIG, {}, {})
    found = record(*journal)
    return RunView(run, Desired(DesiredState.RUNNING, 1), found, [], found.heartbeat_t or 0.0)


@pytest.mark.parametrize(
    ("journal", "named"),
    [
        ((*_RUNNING, finding("1a", **_SPIKE)), ["diagnose r-abcdef", "loss_spike", "wait"]),
        ((*_RUNNING, finding("1a", patches=[HALVED])), ["stop r-abcdef", "--apply 1a`"]),
        ((*_RUNNING, finding("1a")), ["Waiting does not fix it", "stop r-abcdef"]),
        ((*_RECOVERING, finding("1a")), ["recovers by itself", "wait r-abcdef"]),
        ((*_STOPPED, finding("1a", patches=[HALVED])), ["--apply 1a:halve_micro_batch", "without"]),
        ((*_STOPPED, finding("1a")), ["`trainmaster resume r-abcdef` starts over, since it has"]),
        ((*_FAILED, finding("1a")), ["diagnose r-abcdef", "resume r-abcdef`"]),
        ((*_FAILED, finding("1a", patches=[HALVED])), ["--apply 1a:halve_micro_batch"]),
    ],
)
def test_the_diagnosis_and_its_patch_are_named(
    journal: tuple[EventBody, ...], named: list[str]
) -> None:
    assert [words for words in named if words not in next_step_of(*journal)] == []


@pytest.mark.parametrize(
    ("journal", "named"),
    [
        ((*_RUNNING, finding("1a", **_SPIKE)), "wait r-abcdef"),
        ((*_RUNNING, finding("1a", patches=[HALVED])), "stop r-abcdef"),
        ((*_FAILED, finding("1a", patches=[HALVED])), "resume r-abcdef --apply 1a:"),
        ((*_FAILED, finding("1a")), "Once the cause is fixed: `trainmaster resume r-abcdef`"),
        ((*_COMPLETED, finding("1a")), "Completed, but with cuda_oom."),
    ],
)
def test_a_diagnosis_does_not_advise_itself(journal: tuple[EventBody, ...], named: str) -> None:
    view = view_of(*journal)
    words = next_step(view, open_findings(view), is_explained=True)
    assert named in words
    assert "diagnose" not in words


_UNPREPARED = (
    attempt_starting(1),
    state("preparing"),
    attempt_ended(1, "crashed", code=1, detail="exit code 1", last_words="no such image"),
)
_GIVEN_UP = state("failed", reason="max_restarts")


def test_a_preparation_that_fails_is_reported_while_it_is_tried_again() -> None:
    again = (state("recovering", reason="crashed"), attempt_starting(2))
    for journal in (again[:1], again):
        answer = diagnosis_of(view_of(*_UNPREPARED, *journal))
        assert (answer.findings, answer.evidence) == ([], ["no such image"])
        assert (answer.reason, answer.untrusted_detail) == (
            "attempt 1, in its preparation",
            "exit code 1",
        )
    trains = diagnosis_of(view_of(*_UNPREPARED, *again, ("attempt_running", {"attempt": 2})))
    assert (trains.reason, trains.evidence) == (None, None)


_PROGRAM = {**CONFIG, "framework": "script", "script": {"command": ["python3", "train.py"]}}
_ENDED_EARLY = (
    attempt_starting(1),
    state("running"),
    attempt_ended(1, "exited_early", code=0, detail="exit code 0 at step 30 of 100"),
)


@pytest.mark.parametrize("last", [state("recovering", reason="exited_early"), _GIVEN_UP])
def test_a_program_that_ends_before_its_last_step_is_explained(last: EventBody) -> None:
    run = Run("r-abcdef", "r", 1.0, "local", "", _PROGRAM, {}, {})
    progress = [Progress(1, step=30, target_step=100)]
    view = replace(view_of(*_ENDED_EARLY, last), run=run, attempts=progress)
    answer = diagnosis_of(view)
    assert answer.reason == (
        "max_restarts" if last is _GIVEN_UP else "attempt 1, which ended by itself"
    )
    words = answer.next_step or ""
    assert "`steps` is 100" in words and "`trainmaster resume r-abcdef --set steps=30`" in words
    assert ("`trainmaster stop r-abcdef`" in words) == (last is not _GIVEN_UP)
    resumed = replace(view, desired=Desired(DesiredState.RUNNING, 2))
    assert "--set steps" not in next_step(resumed, ())


def test_no_checkpoint_is_waited_for_where_a_program_saves_none() -> None:
    run = Run("r-abcdef", "r", 1.0, "local", "", _PROGRAM, {}, {})
    assert "--until finding,end" in next_step(replace(view_of(*_RUNNING), run=run), ())
    assert "--until checkpoint,end" in next_step_of(*_RUNNING)


def test_a_failed_preparation_names_its_own_log() -> None:
    setup = "`trainmaster logs r-abcdef --stream setup`"
    assert setup in next_step_of(*_UNPREPARED, _GIVEN_UP)
    assert setup in next_step_of(*_UNPREPARED, finding("1a", "hf_network"), _GIVEN_UP)
    running = ("attempt_running", {"attempt": 1})
    trained = (*_UNPREPARED[:2], running, _UNPREPARED[2], _GIVEN_UP)
    assert "`trainmaster logs r-abcdef`" in next_step_of(*trained)


def test_a_stopped_run_with_a_checkpoint_resumes_from_it() -> None:
    saved = Progress(1, checkpoints={5: SavedCheckpoint(5, 1, 1.0, "5", 1, {}, verified=True)})
    view = replace(view_of(*_STOPPED), attempts=[saved])
    assert "resumes from the last checkpoint" in next_step(view, ())


@pytest.mark.parametrize("framework", ["nanogpt", "attached"])
def test_a_run_whose_steps_have_stopped_is_inspected(framework: str) -> None:
    run = Run("r-abcdef", "r", 1.0, "local", "", {**CONFIG, "framework": framework}, {}, {})
    found = record(*_RUNNING)
    now = found.heartbeat_t or 0.0
    progress = Progress(1, step=40, target_step=100, step_time_s=0.5, last_step_t=now - 90.0)
    view = RunView(run, Desired(DesiredState.RUNNING, 1), found, [progress], now)
    assert "`trainmaster inspect r-abcdef`" in next_step(view, ())
    begun = record(*_RECOVERING, attempt_starting(2), state("running"))  # its steps are yet to come
    assert "trainmaster wait r-abcdef" in next_step(replace(view, record=begun), ())


_TRIED_TWICE = (
    attempt_starting(1),
    finding("1a", "nan_loss", step=2, patches=[REWINDS, HALVES_LR]),
    attempt_starting(2, why="guard", by="policy:on_nan rewind_skip_data"),
    finding("2a", "nan_loss", attempt=2, step=2, patches=[REWINDS, HALVES_LR]),
    attempt_starting(3, why="patch:2a:rewind_halve_lr:nan_loss"),
)
_AGAIN = finding("3a", "nan_loss", attempt=3, step=3, patches=[REWINDS, HALVES_LR])


def test_a_patch_that_was_tried_is_not_named_again() -> None:
    failed = state("failed", reason="nan")
    assert "--apply 2a:rewind_halve_lr" in next_step_of(*_TRIED_TWICE[:4], failed)
    words = next_step_of(*_TRIED_TWICE, _AGAIN, failed)
    assert words.startswith("All patches were tried; change `optimizer.lr` yourself")


def test_a_patch_that_was_tried_ranks_last_and_says_so() -> None:
    (found,) = open_findings(view_of(*_TRIED_TWICE[:4]))
    assert [(patch.id, patch.tried) for patch in found.answer().patches] == [
        ("rewind_halve_lr", None),
        ("rewind_skip_data", True),
    ]


def test_a_patch_is_worth_another_try_for_what_comes_earlier() -> None:
    earlier = finding("3a", "nan_loss", attempt=3, step=1, patches=[REWINDS])
    assert "--apply 3a:rewind_skip_data" in next_step_of(
        *_TRIED_TWICE, earlier, state("failed", reason="nan")
    )


def test_a_run_that_completed_with_something_critical_is_not_simply_done() -> None:
    diverged = finding("1a", "divergence")
    words = next_step_of(*_RUNNING, diverged, state("completed"))
    assert words.startswith("Completed, but with divergence:") and "diagnose r-abcdef" in words
    over = ("finding_closed", {"attempt": 1, "id": "1a"})
    assert next_step_of(*_RUNNING, diverged, over, state("completed")).startswith("Done.")


@pytest.mark.parametrize("code", ["plateau", "gpu_idle"])
def test_what_is_only_worth_knowing_changes_nothing(code: str) -> None:
    assert next_step_of(*_RUNNING, finding("1a", code=code, severity="info")) == next_step_of(
        *_RUNNING
    )


def test_a_silent_rehearsal_is_continued_by_a_command_that_follows_it() -> None:
    heard = view_of(*_RUNNING)
    for silent_for_s in (60.0, 3600.0):
        view = replace(heard, run=replace(heard.run, host="debug"), now=heard.now + silent_for_s)
        assert "`trainmaster wait r-abcdef --until end` continues it" in next_step(view, [])
    elsewhere = replace(heard, now=heard.now + 3600.0)
    assert "trainmaster tick" in next_step(elsewhere, [])
