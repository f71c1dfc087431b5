from __future__ import annotations

import json

import pytest
from support.core.journal_records import (
    FIRST_T,
    EventBody,
    evaluation,
    events,
    failed,
    kept,
    metric,
    progress,
    pruned,
    saved,
    started,
)

from trainer_runtime.core.protocol.progress import Progress

WHOLE: tuple[EventBody, ...] = (
    started(0, 100, parameters=1000, device="cpu", skipped=[{"step": 90, "reason": "torn"}]),
    metric(1, 3.0, lr=0.001, step_time_s=0.5),
    ("decision", {"what": "checkpoint_every", "value": "60s", "reason": "measured"}),
    metric(2, 2.9, lr=0.002, step_time_s=0.5),
    evaluation(2, 2.8),
    *kept(2, 2.8),
    ("warning", {"code": "nan_loss", "step": 3, "message": "NaN", "values": {"loss": "NaN"}}),
    pruned(80),
    ("gossip", {"about": "nothing that is known"}),
    ("completed", {"step": 100, "final": "final"}),
)


def test_an_attempt_counts_the_steps_it_did_and_knows_where_it_stands() -> None:
    found = progress(2, started(40, 100), metric(41), metric(42))
    assert (found.started_at_step, found.step, found.steps_done) == (40, 42, 2)
    assert (found.resumed_from, found.target_step) == (40, 100)
    assert (found.first_event_t, found.last_step_t) == (FIRST_T, FIRST_T + 2)


def test_a_checkpoint_counts_once_it_was_read_back() -> None:
    assert progress(1, started(), saved(20)).verified_step is None
    assert progress(1, started(), *kept(20), saved(40)).verified_step == 20


def test_a_checkpoint_whose_check_fails_is_damaged_with_its_reason() -> None:
    found = progress(1, started(), saved(20), failed(20, "model: chunk 0 differs"))
    assert found.checkpoints[20].verified is False
    assert found.checkpoints[20].reason == "model: chunk 0 differs"
    assert found.skipped == {20: "model: chunk 0 differs"}
    assert found.verified_step is None


def test_a_save_that_failed_leaves_no_checkpoint() -> None:
    found = progress(1, started(), failed(20, "no room left"))
    assert found.checkpoints == {}
    assert found.skipped == {20: "no room left"}


def test_own_checkpoints_that_were_pruned_are_gone_and_earlier_attempts_ones_are_noted() -> None:
    found = progress(2, started(40), *kept(60), pruned(20), pruned(60))
    assert found.checkpoints == {}
    assert found.pruned == [20]


def test_the_best_is_the_lowest_validation_loss_with_its_step() -> None:
    found = progress(1, started(), evaluation(1, 3.0), evaluation(2, 2.5), evaluation(3, 2.7))
    assert found.best == {"val_loss": (2.5, 2)}
    assert found.last["val_loss"] == 2.7


def test_the_best_of_margins_is_the_highest() -> None:
    bodies = [
        ("eval", {"step": step, "values": {"val_rewards/margins": value, "val_entropy": 1.0}})
        for step, value in ((1, 0.5), (2, 1.5), (3, 1.0))
    ]
    assert progress(1, started(), *bodies).best == {"val_rewards/margins": (1.5, 2)}


def test_a_validation_loss_that_is_no_number_is_never_the_best() -> None:
    found = progress(1, started(), evaluation(1, 3.0), evaluation(2, float("nan")))
    assert found.best == {"val_loss": (3.0, 1)}
    assert found.last["val_loss"] == "NaN"


def test_the_pace_follows_the_newest_steps() -> None:
    slow = [metric(step, step_time_s=1.0) for step in range(1, 20)]
    fast = [metric(step, step_time_s=0.1) for step in range(20, 120)]
    assert progress(1, *slow).step_time_s == pytest.approx(1.0)
    assert progress(1, *slow, *fast).step_time_s == pytest.approx(0.1, rel=0.01)


def test_of_many_warnings_the_newest_twenty_are_kept() -> None:
    bodies = [("warning", {"code": "spike", "step": step, "message": ""}) for step in range(50)]
    assert [warning.step for warning in progress(1, *bodies).warnings] == list(range(30, 50))


def test_kinds_that_are_not_known_change_nothing_but_the_clock() -> None:
    found = progress(1, started(), ("gossip", {"step": 50}))
    assert (found.step, found.last_event_t, found.last_seq) == (0, FIRST_T + 1, 1)


@pytest.mark.parametrize("cut", range(len(WHOLE) + 1))
def test_folding_continues_after_a_journey_through_json(cut: int) -> None:
    recorded = events(WHOLE)
    found = Progress(1)
    for event in recorded[:cut]:
        found.apply(event)
    found = Progress.from_dict(json.loads(json.dumps(found.to_dict())))
    for event in recorded[cut:]:
        found.apply(event)
    assert found == progress(1, *WHOLE)
    assert found.completed
