"""A place lent for a time: the trainer is ended in time, and the next supervisor resumes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.core.journal_records import EventBody, kept, metric, pruned, started
from support.host.scripted_processes import Box, Life

from trainer_runtime.core.lease.session import Session
from trainer_runtime.core.policy.endings import Exit
from trainer_runtime.core.protocol.states import PlacementState
from trainer_runtime.host.files.files import write_json

BEGIN_T, LENGTH_S, MARGIN_S = 1_000.0, 120.0, 20.0
END_T = BEGIN_T + LENGTH_S
SLOW_SAVE: EventBody = (
    "checkpoint",
    {"action": "saved", "step": 20, "path": "checkpoints/step-00000020", "size_bytes": 1}
    | {"stall_s": 2.0, "write_s": 8.0},
)
SAVING = Life((started(), metric(1), SLOW_SAVE, *kept(20)[1:], metric(30)), end=None)
RESUMED = Life((started(20), metric(21), *kept(100), ("completed", {"step": 100})))


def a_box(folder: Path, *lives: Life, **changes: Any) -> Box:
    box = Box(folder / "small-abc234", dict(enumerate(lives, 1)))
    box.set_up(**changes)
    return box


def lent(box: Box, number: int = 1) -> Box:
    """Begin a session of two minutes now."""
    write_json(box.run.session, Session(number, box.now, box.now + LENGTH_S, MARGIN_S).to_dict())
    return box


def recorded_at(box: Box, kind: str) -> float:
    return next(float(event["t"]) for event in box.journal() if event["kind"] == kind)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return lent(a_box(tmp_path, SAVING, RESUMED))


def test_a_trainer_is_signalled_two_saves_and_a_margin_before_the_end(box: Box) -> None:
    record = box.to_the_end()
    assert recorded_at(box, "attempt_signalled") == pytest.approx(
        END_T - MARGIN_S - 2 * 10.0, abs=1
    )
    assert (record.state, record.reason) == (PlacementState.RECOVERING, "session_over")
    assert (record.detail, record.closed) == ("saved and ended", False)
    assert (record.attempts[0].reason, box.started) == ("session_over", [1])


def test_the_next_sessions_supervisor_resumes_where_it_ended(box: Box) -> None:
    box.to_the_end()
    box.now += 5 * 3600.0
    record = lent(box, 2).to_the_end()
    assert (record.state, record.closed) == (PlacementState.COMPLETED, True)
    second = record.attempts[1]
    assert (second.number, second.why, second.candidates) == (2, "session_over", [20])


def test_a_trainer_that_continues_is_killed_while_its_checkpoints_can_still_be_kept(
    tmp_path: Path,
) -> None:
    stubborn = Life((started(), metric(1), *kept(20)), end=None, on_sigterm=None)
    box = lent(a_box(tmp_path, stubborn, RESUMED))
    record = box.to_the_end()
    assert record.attempts[0].signal == 9
    assert END_T - MARGIN_S / 2 <= recorded_at(box, "attempt_ended") < END_T
    assert (record.state, record.reason) == (PlacementState.RECOVERING, "session_over")


@pytest.mark.slow
def test_sessions_that_end_are_no_failures(tmp_path: Path) -> None:
    recovery = {"max_restarts": 0, "on_crash": "stop", "on_nan": "stop"}
    endless = Life((started(), metric(1)), end=None)
    box = a_box(tmp_path, endless, endless, endless, RESUMED, recovery=recovery)
    for number in range(1, 4):
        lent(box, number).to_the_end()
        box.now += 100.0
    record = lent(box, 4).to_the_end()
    assert [attempt.reason for attempt in record.attempts] == ["session_over"] * 3 + ["completed"]


def test_a_run_that_completes_in_time_is_just_complete(tmp_path: Path) -> None:
    box = lent(a_box(tmp_path, Life((started(), *kept(100), ("completed", {"step": 100})))))
    record = box.to_the_end()
    assert (record.state, record.closed) == (PlacementState.COMPLETED, True)


def test_an_unfinished_preparation_is_repeated_by_the_next(tmp_path: Path) -> None:
    box = lent(a_box(tmp_path, Life(prepared=None), RESUMED))
    record = box.to_the_end()
    assert (record.attempts[0].reason, record.state) == ("session_over", PlacementState.RECOVERING)
    box.now += 100.0
    assert lent(box, 2).to_the_end().state is PlacementState.COMPLETED


def test_a_restart_that_waits_is_left_to_the_next_session(tmp_path: Path) -> None:
    recovery = {"max_restarts": 3, "on_crash": "resume", "decide_within": "1h"}
    recovery |= {"on_nan": "rewind_skip_data"}
    warning: EventBody = ("warning", {"code": "nan_loss", "step": 47, "message": "NaN"})
    guarded = Life((started(), *kept(20), metric(47), warning), end=Exit(76, None))
    box = lent(a_box(tmp_path, guarded, RESUMED, recovery=recovery))
    record = box.to_the_end()
    assert (record.state, record.reason) == (PlacementState.RECOVERING, "needs_operator")
    assert box.started == [1]
    box.now += 3600.0
    assert lent(box, 2).to_the_end().attempts[1].candidates == [20]


def test_what_is_asked_for_after_the_end_is_answered_by_the_next_session(box: Box) -> None:
    supervisor = box.supervisor()
    box.tick(supervisor, "restart_planned")
    box.ask("running", 2, why="resume", set={"optimizer.lr": 0.5})
    assert supervisor.tick()
    assert not supervisor.has_newer_request()
    supervisor.close()
    record = lent(box, 2).to_the_end()
    assert [(one.why, one.set) for one in record.attempts[1:]] == [
        ("resume", {"optimizer.lr": 0.5})
    ]


def test_max_runtime_counts_sessions_and_not_the_time_between(tmp_path: Path) -> None:
    endless = Life((started(), metric(1)), end=None)
    gone = Exit(None, None, rebooted=True)
    box = a_box(tmp_path, endless, endless, limits={"max_runtime_s": 170.0})
    supervisor = lent(box).supervisor()
    while box.now < BEGIN_T + 60.0:  # and then the machine is gone
        supervisor.tick()
        box.now += 1.0
    supervisor.close()
    box.finish(1, gone)
    box.now += 20 * 3600.0
    record = lent(box, 2).to_the_end()
    assert [attempt.reason for attempt in record.attempts] == ["reboot", "session_over"]
    assert record.attempts[0].seconds(box.now) == pytest.approx(60.0, abs=11)
    assert record.attempts[1].seconds(box.now) == pytest.approx(100.0, abs=5)


def test_a_run_whose_newer_checkpoints_are_lost_resumes_from_one_that_is_left(
    box: Box, tmp_path: Path
) -> None:
    box.to_the_end()
    output = tmp_path / "output/small-abc234"
    shutil.copytree(box.root, output, symlinks=True)
    newer = Life((started(20), *kept(40), *kept(60), pruned(20), metric(61)), Exit(None, 9))
    box.lives = {**box.lives, 2: newer, 3: Life((started(60), metric(61)), end=None)}
    supervisor = lent(box, 2).supervisor()
    while box.started != [1, 2, 3] or box.record().attempts[-1].running_t is None:
        supervisor.tick()
        box.now += 1.0
        if box.started[-1] == 2:
            shutil.rmtree(box.run.checkpoints / "step-00000020", ignore_errors=True)
    supervisor.close()
    assert box.record().attempts[2].candidates == [60, 40]

    lives = {1: SAVING, 2: newer, 3: Life(), 5: RESUMED}
    left = Box(output, lives, box.now, started=[1, 2, 3])
    left.ends = {3: Exit(None, None, rebooted=True)}
    shutil.copyfile(box.run.journal, left.run.journal)
    left.run.attempt(4).root.mkdir()  # somebody has seen more of the session than its journal
    record = lent(left, 3).to_the_end()
    newest = record.attempts[-1]
    assert (record.state, newest.number, newest.candidates) == (
        PlacementState.COMPLETED,
        5,
        [20],
    )
