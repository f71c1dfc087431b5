from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.core.journal_records import kept, metric, started
from support.host.scripted_processes import Box, Life
from support.runs.watched_run import (
    COMPLETED,
    CRASHED,
    CUDA_OOM,
    GUARD,
    SPIKE,
    STEADY,
    codes,
    lived,
    recorded,
)

from trainer_runtime.core.checkpoints.kept_checkpoints import pinned_steps
from trainer_runtime.core.protocol.finding import Finding
from trainer_runtime.core.protocol.states import PlacementState


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path / "runs" / "small-abc234", {})


def test_a_stall_is_recorded_once_then_the_trainer_is_ended_and_started_again(box: Box) -> None:
    lived(box, Life(STEADY, end=None), COMPLETED, on_stall="stacks_restart")
    record = box.to_the_end()
    assert record.state is PlacementState.COMPLETED
    first = record.attempts[0]
    assert (first.terminated_why, first.reason) == ("stall", "stall")
    assert record.attempts[1].why == "stall"
    states = [(event["state"], event["reason"]) for event in recorded(box, "state")]
    assert ("recovering", "stall") in states and "stopping" not in dict(states)
    assert codes(box) == [(1, "stall")]
    severities = [event["finding"]["severity"] for event in recorded(box)]
    assert (severities[0], severities[-1]) == ("warning", "critical")
    assert len(severities) < 12


def test_a_stall_ends_the_run_where_that_is_wanted(box: Box) -> None:
    lived(box, Life(STEADY, end=None), on_stall="stacks_stop")
    record = box.to_the_end()
    assert (record.state, record.reason) == (PlacementState.FAILED, "stall")
    assert "stopping" in [event["state"] for event in recorded(box, "state")]
    assert [found.finding.code for found in record.open_findings] == ["stall"]


@pytest.mark.slow
def test_a_slow_training_is_no_hung_one(box: Box) -> None:
    lived(box, Life(STEADY, end=None), on_stall="stacks_restart")
    box.verdict = Finding("0" * 8, "slow_not_hung", "info", 0.9, 20, (), "It is slow.")
    supervisor = box.supervisor()
    for _ in range(2000):
        supervisor.tick()
        box.now += 1.0
    assert set(codes(box)) == {(1, "stall"), (1, "slow_not_hung")}
    assert box.started == [1] and not box.requests.count(("terminate", 1))
    supervisor.close()
    again = box.supervisor()
    for _ in range(50):
        again.tick()
        box.now += 1.0
    assert len(box.record().open_findings) == 2
    assert not recorded(box, "finding_closed")


def test_a_box_that_slept_has_no_stall(box: Box) -> None:
    lived(box, Life(STEADY, end=None), on_stall="stacks_restart")
    supervisor = box.supervisor()
    box.tick(supervisor, "running")
    for hours in (8, 0):
        for _ in range(25):
            supervisor.tick()
            box.now += 1.0
        box.now += hours * 3600
    assert codes(box) == []


def test_a_spike_that_stays_is_rewound_to_before_it_without_its_data(box: Box) -> None:
    life = Life((*SPIKE, *kept(129)), end=None)
    lived(box, life, COMPLETED, on_spike="rewind_skip_data")
    record = box.to_the_end()
    assert (record.state, record.attempts[0].reason) == (PlacementState.COMPLETED, "loss_spike")
    config = box.attempt_config(2)
    assert config["attempt"]["resume"]["candidates"] == [50]
    assert config["data"]["skip"] == [{"at_step": 50, "sequences": 79 * 8}]
    assert record.attempts[1].by == "policy:on_spike rewind_skip_data"


def test_a_spike_can_halve_the_learning_rate_or_stop_the_run(box: Box, tmp_path: Path) -> None:
    lived(box, Life(SPIKE, end=None), COMPLETED, on_spike="rewind_halve_lr")
    box.to_the_end()
    assert box.attempt_config(2)["optimizer"]["lr"] == 0.0005
    other = lived(Box(tmp_path / "other-abc234", {}), Life(SPIKE, end=None), on_spike="stop")
    record = other.to_the_end()
    assert (record.state, record.reason) == (PlacementState.FAILED, "loss_spike")


def test_what_is_rewound_is_ended_at_once_and_saves_nothing(box: Box) -> None:
    lived(box, Life(SPIKE, end=None), COMPLETED, on_spike="rewind_halve_lr")
    assert box.to_the_end().attempts[0].signal == 9
    assert ("terminate", 1) not in box.requests


def test_the_checkpoint_before_a_spike_is_held_until_another_attempt_runs(box: Box) -> None:
    lived(box, Life(SPIKE[:-60], end=None), COMPLETED, on_spike="rewind_halve_lr")
    supervisor = box.supervisor()
    box.tick(supervisor, "finding")
    supervisor.tick()
    assert pinned_steps(box.root) == {50}
    for line in SPIKE[-60:]:
        box.emit(1, line)
    box.tick(supervisor, "restart_planned")
    assert pinned_steps(box.root) == {50}
    assert box.to_the_end(supervisor).state is PlacementState.COMPLETED
    assert pinned_steps(box.root) == frozenset()


def test_data_that_was_left_out_in_vain_is_not_left_out_again(box: Box) -> None:
    warning = ("warning", {"code": "nan_loss", "step": 2, "message": "the loss is NaN"})
    lost = Life((started(), metric(1), warning), GUARD)
    lived(box, lost, lost, on_nan="rewind_skip_data")
    record = box.to_the_end()
    assert (record.state, record.reason) == (PlacementState.FAILED, "nan")
    assert (box.started, len(box.attempt_config(2)["data"]["skip"])) == ([1, 2], 1)


def test_a_divergence_is_treated_as_a_spike_is(box: Box) -> None:
    rising = (started(), *kept(8), *(metric(step, 2.0 + 0.02 * step) for step in range(1, 160)))
    lived(box, Life(rising, end=None), COMPLETED, on_spike="rewind_halve_lr")
    record = box.to_the_end()
    assert (record.state, record.attempts[0].reason) == (PlacementState.COMPLETED, "divergence")
    assert record.attempts[1].by == "policy:on_spike rewind_halve_lr"


def test_a_spike_is_only_recorded_by_default(box: Box) -> None:
    lived(box, Life(SPIKE, end=None), on_spike="warn")
    supervisor = box.supervisor()
    box.tick(supervisor, "finding")
    for _ in range(30):
        supervisor.tick()
        box.now += 1.0
    assert box.started == [1] and ("terminate", 1) not in box.requests
    found = {one.finding.code: one for one in box.record().open_findings}["loss_spike"]
    shown = " ".join(found.finding.evidence)
    for part in ("2.52 before", "9 at the onset", "trained on sequences 472 to 1031"):
        assert part in shown, shown
    assert found.finding.patches[0].id == "rewind_skip_data"


def test_the_operator_has_time_to_choose_before_something_is_changed(box: Box) -> None:
    lived(box, Life((started(),), CRASHED, log=CUDA_OOM), COMPLETED, decide_within="15m")
    config = json.loads(box.run.config.read_bytes())
    config["recovery"]["on_oom"] = "patch"
    box.run.config.write_text(json.dumps(config))
    supervisor = box.supervisor()
    box.tick(supervisor, "restart_planned")
    record = box.record()
    assert (record.state, record.reason) == (PlacementState.RECOVERING, "needs_operator")
    assert record.restart_due_t == pytest.approx(box.now + 900, abs=3)
    box.ask("running", 2, why="resume", set={"batch.micro_batch": 2})
    record = box.to_the_end(supervisor)
    assert [attempt.why for attempt in record.attempts] == ["launch", "resume"]
    assert box.attempt_config(2)["batch"]["micro_batch"] == 2


def test_a_choice_that_nobody_makes_is_made_in_time(box: Box) -> None:
    recovery = {"decide_within": "15m", "on_oom": "patch"}
    lived(box, Life((started(),), CRASHED, log=CUDA_OOM), COMPLETED, **recovery)
    record = box.to_the_end()
    first, second = record.attempts
    assert second.starting_t - (first.ended_t or 0.0) == pytest.approx(900, abs=3)
    assert box.attempt_config(2)["batch"]["micro_batch"] == 4


@pytest.mark.slow
def test_what_was_slow_and_hangs_by_now_is_ended_after_all(box: Box) -> None:
    lived(box, Life(STEADY, end=None), COMPLETED, on_stall="stacks_restart")
    box.verdict = Finding("0" * 8, "slow_not_hung", "warning", 0.9, 20, (), "It is slow.")
    supervisor = box.supervisor()
    for _ in range(1500):
        supervisor.tick()
        box.now += 1.0
    assert box.started == [1]
    box.verdict = Finding("1" * 8, "hang_data", "critical", 0.9, 20, (), "It waits for data.")
    record = box.to_the_end(supervisor)
    assert (record.attempts[0].reason, record.state) == ("stall", PlacementState.COMPLETED)
    closed = [event["id"] for event in recorded(box, "finding_closed")]
    ended = next(event["seq"] for event in recorded(box, "attempt_ended"))
    slow_over = next(
        event["seq"] for event in recorded(box, "finding_closed") if event["id"] == "0" * 8
    )
    assert slow_over < ended and closed.count("0" * 8) == 1


@pytest.mark.slow
def test_a_slow_training_of_which_nothing_is_known_any_more_counts_as_hung(box: Box) -> None:
    lived(box, Life(STEADY, end=None), COMPLETED, on_stall="stacks_restart")
    box.verdict = Finding("0" * 8, "slow_not_hung", "warning", 0.9, 20, (), "It is slow.")
    supervisor = box.supervisor()
    for _ in range(1500):
        supervisor.tick()
        box.now += 1.0
    box.verdict = None
    assert box.to_the_end(supervisor).attempts[0].reason == "stall"


def test_a_restarted_supervisor_knows_the_runs_own_pace(box: Box) -> None:
    lived(box, Life(STEADY, end=None), on_stall="stacks_restart")
    first = box.supervisor()
    box.tick(first, "running")
    for _ in range(60):
        first.tick()
        box.now += 1.0
    first.close()
    box.tick(box.supervisor(), "finding")
    (found,) = box.record().open_findings
    assert found.finding.code == "stall"
    assert "the limit at its pace is 120 s" in " ".join(found.finding.evidence)
