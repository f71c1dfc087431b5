from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.core.journal_records import EventBody, kept, metric, started
from support.host.scripted_processes import Box, Life
from support.runs.watched_run import (
    BATCH,
    COMPLETED,
    CRASHED,
    CUDA_OOM,
    GUARD,
    NO_MEMORY,
    NO_SYMBOL,
    STEADY,
    codes,
    lived,
    recorded,
)

from trainer_runtime.core.protocol.states import PlacementState


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path / "runs" / "small-abc234", {})


def test_a_finding_of_the_log_is_recorded_before_the_end_that_it_led_to(box: Box) -> None:
    lived(box, Life((started(),), CRASHED, log=CUDA_OOM), on_oom="stop")
    record = box.to_the_end()
    assert (record.state, record.reason) == (PlacementState.FAILED, "cuda_oom")
    kinds = [event["kind"] for event in box.journal()]
    assert kinds.index("finding") < kinds.index("attempt_ended")
    (found,) = record.open_findings
    assert found.finding.code == "cuda_oom"
    assert any("Tried to allocate 2.00 GiB" in line for line in found.finding.evidence)


def test_out_of_memory_is_patched_even_before_the_first_step(box: Box) -> None:
    lived(box, Life((started(),), CRASHED, log=CUDA_OOM), COMPLETED, on_oom="patch")
    record = box.to_the_end()
    assert record.state is PlacementState.COMPLETED
    assert box.attempt_config(2)["batch"] == {"micro_batch": 4, "accumulation": 4}
    second = record.attempts[1]
    assert (second.why, second.by) == ("cuda_oom", "policy:on_oom halve_micro_batch")
    assert [event["attempt"] for event in recorded(box, "finding_closed")] == [1]


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
    assert len(recorded(box, "findings_muted")) == 1
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


def test_a_log_that_is_truncated_is_read_again(box: Box) -> None:
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
    odd: tuple[EventBody, ...] = (
        ("warning", {"code": 7, "step": "late", "message": None}),
        ("decision", {"what": "checkpoint_every", "value": [1]}),
        ("phase", {"step": {}}),
    )
    completed = COMPLETED.events
    lived(box, Life((completed[0], *odd, *completed[1:])))
    assert box.to_the_end().state is PlacementState.COMPLETED


def test_a_program_that_retries_for_ever_is_found_while_it_runs(box: Box) -> None:
    retries = "".join(f"INFO {n} reward server not reachable, trying again\n" for n in range(20))
    box.lives = {1: Life((started(), metric(1)), end=None, log=retries)}
    box.set_up()
    supervisor = box.supervisor()
    for _ in range(30):
        supervisor.tick()
        box.now += 1.0
    assert (1, "waits_for_service") in codes(box)
    assert recorded(box, "attempt_ended") == []
    supervisor.close()
