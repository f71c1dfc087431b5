from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recorded import Told, kept, metric, started
from scripted import Box, Life

from trainer_runtime.core.finding import Finding
from trainer_runtime.core.held import held_steps
from trainer_runtime.core.policy import Exit
from trainer_runtime.core.protocol import Event
from trainer_runtime.core.states import PlacementState

CRASHED, KILLED, GUARD = Exit(1, None), Exit(None, 9), Exit(76, None)
COMPLETED = Life((started(), metric(1), metric(100), *kept(100), ("completed", {"step": 100})))
BATCH = {"micro_batch": 8, "accumulation": 2}
CUDA_OOM = (
    "Traceback (most recent call last):\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.15 GiB of which 1.06 GiB is free.\n"
)
NO_MEMORY = (
    "Traceback (most recent call last):\n"
    "RuntimeError: [enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't "
    "allocate memory: you tried to allocate 2147483648 bytes. Error code 12 (Cannot allocate "
    "memory)\n"
)
NO_SYMBOL = (
    "ImportError: /site-packages/flash_attn_2_cuda.so: undefined symbol: "
    "_ZN3c105ErrorC2ENS_14SourceLocationESs\n"
)
STEADY: tuple[Told, ...] = (started(), *(metric(step) for step in range(1, 21)))
SPIKE: tuple[Told, ...] = (
    started(),
    *(metric(step, 2.5 + 0.01 * (step % 5)) for step in range(1, 60)),
    *kept(50),
    *(metric(step, 9.0 + 0.01 * (step % 5)) for step in range(60, 130)),
)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path / "runs" / "small-abc234", {})


def lived(box: Box, *lives: Life, **recovery: Any) -> Box:
    box.lives = dict(enumerate(lives, 1))
    rules = {"max_restarts": 3, "on_crash": "resume", "on_nan": "rewind_skip_data", **recovery}
    box.set_up(batch=BATCH, recovery=rules, optimizer={"lr": 0.001, "grad_clip": 1.0})
    return box


def told(box: Box, kind: str = "finding") -> list[Event]:
    return [event for event in box.journal() if event["kind"] == kind]


def codes(box: Box) -> list[tuple[int, str]]:
    """Attempt and code of each finding, in the order in which they were opened."""
    opened: dict[str, tuple[int, str]] = {}
    for event in told(box):
        opened.setdefault(event["finding"]["id"], (event["attempt"], event["finding"]["code"]))
    return list(opened.values())


def test_what_the_log_says_is_told_before_the_end_that_it_led_to(box: Box) -> None:
    lived(box, Life((started(),), CRASHED, log=CUDA_OOM), on_oom="stop")
    record = box.to_the_end()
    assert (record.state, record.reason) == (PlacementState.FAILED, "cuda_oom")
    kinds = [event["kind"] for event in box.journal()]
    assert kinds.index("finding") < kinds.index("attempt_ended")
    (found,) = record.open_findings
    assert found.finding["code"] == "cuda_oom"
    assert any("Tried to allocate 2.00 GiB" in line for line in found.finding["evidence"])


def test_out_of_memory_is_patched_even_before_the_first_step(box: Box) -> None:
    lived(box, Life((started(),), CRASHED, log=CUDA_OOM), COMPLETED, on_oom="patch")
    record = box.to_the_end()
    assert record.state is PlacementState.COMPLETED
    assert box.attempt_config(2)["batch"] == {"micro_batch": 4, "accumulation": 4}
    second = record.attempts[1]
    assert (second.why, second.by) == ("cuda_oom", "policy:on_oom halve_micro_batch")
    assert [event["attempt"] for event in told(box, "finding_closed")] == [1]


def test_out_of_memory_with_nothing_left_to_halve_waits_for_the_operator(box: Box) -> None:
    lived(box, *[Life((started(),), CRASHED, log=CUDA_OOM)] * 4, on_oom="patch", max_restarts=9)
    record = box.to_the_end()
    assert (record.state, record.reason) == (PlacementState.FAILED, "needs_operator")
    assert str(record.detail).startswith("cuda_oom: The GPU's memory is exhausted.")
    assert box.attempt_config(4)["batch"] == {"micro_batch": 1, "accumulation": 16}


def test_a_training_that_had_room_before_tries_again_as_others_may_give_memory_back(
    box: Box,
) -> None:
    box.lives = {1: Life((*STEADY,), CRASHED, log=CUDA_OOM), 2: COMPLETED}
    recovery = {"max_restarts": 3, "on_crash": "resume", "on_oom": "patch"}
    box.set_up(batch={"micro_batch": 1, "accumulation": 16}, recovery=recovery)
    assert box.to_the_end().state is PlacementState.COMPLETED


def test_a_processor_that_trains_is_given_less_at_a_time_when_its_memory_is_used_up(
    box: Box,
) -> None:
    box.lives = {1: Life((started(),), CRASHED, log=NO_MEMORY), 2: COMPLETED}
    recovery = {"max_restarts": 3, "on_crash": "resume", "on_oom": "patch"}
    box.set_up(batch=BATCH, recovery=recovery, compute={"device": "cpu"})
    record = box.to_the_end()
    assert (record.state, record.attempts[1].why) == (PlacementState.COMPLETED, "host_oom")
    assert box.attempt_config(2)["batch"] == {"micro_batch": 4, "accumulation": 4}


def test_memory_that_the_preparation_lacks_changes_nothing_in_the_training(box: Box) -> None:
    box.lives = {1: Life(prepared=1, setup_log=NO_MEMORY)}
    recovery = {"max_restarts": 3, "on_crash": "resume", "on_oom": "patch"}
    box.set_up(batch=BATCH, recovery=recovery, compute={"device": "cpu"})
    record = box.to_the_end()
    assert (record.state, record.reason) == (PlacementState.FAILED, "needs_operator")
    assert (codes(box), box.started) == ([(1, "host_oom")], [])


def test_what_every_try_would_meet_again_is_not_tried_again(box: Box) -> None:
    lived(box, Life((started(), metric(1)), CRASHED, log=NO_SYMBOL))
    record = box.to_the_end()
    assert (record.state, record.reason) == (PlacementState.FAILED, "needs_operator")
    assert str(record.detail).startswith("flash_attn_abi_mismatch: ")
    assert box.started == [1]


def test_a_preparation_that_failed_is_diagnosed_from_its_own_log(box: Box) -> None:
    lived(box, Life(prepared=1, setup_log=NO_SYMBOL))
    record = box.to_the_end()
    assert record.reason == "needs_operator"
    assert codes(box) == [(1, "flash_attn_abi_mismatch")]


def test_the_guards_word_and_the_logs_are_one_finding(box: Box) -> None:
    warning = ("warning", {"code": "nan_loss", "step": 47, "message": "NaN"})
    nan = ("metric", {"step": 47, "values": {"loss": "NaN"}})
    log = "step 46/100 | loss 2.5\nstep 47/100 | loss nan\n"
    guarded = Life((started(), metric(46), *kept(40), nan, warning), GUARD, log=log)
    lived(box, guarded, COMPLETED)
    assert box.to_the_end().state is PlacementState.COMPLETED
    assert codes(box) == [(1, "nan_loss")]
    assert box.attempt_config(2)["data"]["skip"] == [{"at_step": 40, "sequences": 56}]


def test_secrets_are_masked_in_evidence_even_where_it_is_cut(box: Box) -> None:
    secret = "s3cr3t-" + "x" * 400
    log = f"CUDA out of memory. Tried to allocate 2.00 GiB for {secret}\n"
    lived(box, Life((started(),), CRASHED, log=log), on_oom="stop")
    box.run.secrets.write_text(json.dumps({"generation": 1, "values": {"TOKEN": secret}}))
    box.to_the_end()
    assert codes(box) == [(1, "cuda_oom")]
    assert b"s3cr3t" not in box.run.journal.read_bytes()


def test_a_stall_is_told_once_then_the_trainer_is_ended_and_started_again(box: Box) -> None:
    lived(box, Life(STEADY, end=None), COMPLETED, on_stall="stacks_restart")
    record = box.to_the_end()
    assert record.state is PlacementState.COMPLETED
    first = record.attempts[0]
    assert (first.terminated_why, first.reason) == ("stall", "stall")
    assert record.attempts[1].why == "stall"
    states = [(event["state"], event["reason"]) for event in told(box, "state")]
    assert ("recovering", "stall") in states and "stopping" not in dict(states)
    assert codes(box) == [(1, "stall")]
    severities = [event["finding"]["severity"] for event in told(box)]
    assert (severities[0], severities[-1]) == ("warning", "critical")
    assert len(severities) < 12


def test_a_stall_ends_the_run_where_that_is_wanted(box: Box) -> None:
    lived(box, Life(STEADY, end=None), on_stall="stacks_stop")
    record = box.to_the_end()
    assert (record.state, record.reason) == (PlacementState.FAILED, "stall")
    assert "stopping" in [event["state"] for event in told(box, "state")]
    assert [found.finding["code"] for found in record.open_findings] == ["stall"]


def test_a_slow_training_is_no_hung_one(box: Box) -> None:
    lived(box, Life(STEADY, end=None), on_stall="stacks_restart")
    box.verdict = Finding("0" * 8, "slow_not_hung", "info", 0.9, 20, (), "It is slow.")
    supervisor = box.supervisor()
    for _ in range(2000):
        supervisor.tick()
        box.now += 1.0
    assert set(codes(box)) == {(1, "stall"), (1, "slow_not_hung")}
    assert box.started == [1] and not box.told.count(("terminate", 1))
    supervisor.close()
    again = box.supervisor()
    for _ in range(50):
        again.tick()
        box.now += 1.0
    assert len(box.record().open_findings) == 2
    assert not told(box, "finding_closed")


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
    assert ("terminate", 1) not in box.told


def test_the_checkpoint_before_a_spike_is_held_until_another_attempt_runs(box: Box) -> None:
    lived(box, Life(SPIKE[:-60], end=None), COMPLETED, on_spike="rewind_halve_lr")
    supervisor = box.supervisor()
    box.tick(supervisor, "finding")
    supervisor.tick()
    assert held_steps(box.root) == {50}
    for told in SPIKE[-60:]:
        box.tell(1, told)
    box.tick(supervisor, "restart_planned")
    assert held_steps(box.root) == {50}
    assert box.to_the_end(supervisor).state is PlacementState.COMPLETED
    assert held_steps(box.root) == frozenset()


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


def test_a_spike_is_only_told_of_by_default(box: Box) -> None:
    lived(box, Life(SPIKE, end=None), on_spike="warn")
    supervisor = box.supervisor()
    box.tick(supervisor, "finding")
    for _ in range(30):
        supervisor.tick()
        box.now += 1.0
    assert box.started == [1] and ("terminate", 1) not in box.told
    found = {one.finding["code"]: one for one in box.record().open_findings}["loss_spike"]
    shown = " ".join(found.finding["evidence"])
    for part in ("2.52 before", "9 at the onset", "made of the sequences 472 to 1031"):
        assert part in shown, shown
    assert found.finding["patches"][0]["id"] == "rewind_skip_data"


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


def test_a_flood_of_findings_leaves_the_journal_bounded(box: Box) -> None:
    quiet = [2.5 + 0.01 * (step % 5) for step in range(40)]
    losses = [*quiet, *([9.0, 9.0, *[2.5] * 20] * 400)]
    events = (started(), *(metric(step, loss) for step, loss in enumerate(losses, 1)))
    lived(box, Life(events, end=None))
    supervisor = box.supervisor()
    box.tick(supervisor, "findings_muted")
    for _ in range(100):
        supervisor.tick()
        box.now += 1.0
    assert len(codes(box)) <= 24 + 1
    assert len(told(box, "findings_muted")) == 1
    size = box.run.journal.stat().st_size
    supervisor.close()
    again = box.supervisor()
    for _ in range(5):
        again.tick()
        box.now += 1.0
    assert box.run.journal.stat().st_size - size < 2000


def test_a_stop_that_was_asked_for_is_no_failure_while_it_takes_its_time(box: Box) -> None:
    log = "Received SIGTERM, terminating\nTraceback (most recent call last):\nSIGTERM\n"
    lived(box, Life(STEADY, end=None, on_sigterm=None))
    supervisor = box.supervisor()
    box.tick(supervisor, "running")
    box.ask("stopped", 2, grace_s=10)
    box.tick(supervisor, "attempt_signalled")
    box.run.attempt(1).train_log.write_text(log)
    assert box.to_the_end(supervisor).state is PlacementState.STOPPED
    assert codes(box) == []


def test_a_log_that_is_truncated_is_read_anew(box: Box) -> None:
    lived(box, Life(STEADY, end=None, log="nothing\n" * 50))
    supervisor = box.supervisor()
    box.tick(supervisor, "running")
    for _ in range(3):
        supervisor.tick()
        box.now += 1.0
    box.run.attempt(1).train_log.write_text(CUDA_OOM)
    box.tick(supervisor, "finding")
    assert codes(box) == [(1, "cuda_oom")]


def test_events_with_fields_of_other_types_than_promised_do_no_harm(box: Box) -> None:
    odd: tuple[Told, ...] = (
        ("warning", {"code": 7, "step": "late", "message": None}),
        ("decision", {"what": "checkpoint_every", "value": [1]}),
        ("phase", {"step": {}}),
    )
    completed = COMPLETED.events
    lived(box, Life((completed[0], *odd, *completed[1:])))
    assert box.to_the_end().state is PlacementState.COMPLETED


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
    closed = [event["id"] for event in told(box, "finding_closed")]
    ended = next(event["seq"] for event in told(box, "attempt_ended"))
    slow_over = next(
        event["seq"] for event in told(box, "finding_closed") if event["id"] == "0" * 8
    )
    assert slow_over < ended and closed.count("0" * 8) == 1


def test_a_slow_training_of_which_nothing_is_known_any_more_counts_as_hung(box: Box) -> None:
    lived(box, Life(STEADY, end=None), COMPLETED, on_stall="stacks_restart")
    box.verdict = Finding("0" * 8, "slow_not_hung", "warning", 0.9, 20, (), "It is slow.")
    supervisor = box.supervisor()
    for _ in range(1500):
        supervisor.tick()
        box.now += 1.0
    box.verdict = None
    assert box.to_the_end(supervisor).attempts[0].reason == "stall"


def test_a_supervisor_that_is_started_anew_knows_the_runs_own_pace(box: Box) -> None:
    lived(box, Life(STEADY, end=None), on_stall="stacks_restart")
    first = box.supervisor()
    box.tick(first, "running")
    for _ in range(60):
        first.tick()
        box.now += 1.0
    first.close()
    box.tick(box.supervisor(), "finding")
    (found,) = box.record().open_findings
    assert found.finding["code"] == "stall"
    assert "120 s would be within its pace" in " ".join(found.finding["evidence"])
