from __future__ import annotations

from typing import Any

from support.core.journal_records import failed, kept, metric, progress, pruned, saved, started

from trainer_runtime.core.checkpoints.checkpoint_index import CheckpointIndex, build_index
from trainer_runtime.core.protocol.progress import Progress


def index(*attempts: Progress) -> CheckpointIndex:
    return build_index(attempts, "val_loss")


def test_the_newest_is_resumed_and_the_lowest_loss_is_best() -> None:
    found = index(progress(1, started(), *kept(20, 3.0), *kept(40, 2.5), *kept(60, 2.6)))
    assert (found.resume_from, found.best) == (60, 40)
    assert [(entry.step, entry.tags) for entry in found.entries] == [
        (20, ()),
        (40, ("best",)),
        (60, ("latest",)),
    ]


def test_the_best_reward_is_the_highest() -> None:
    events = []
    for step, reward in [(20, -0.5), (40, 0.5), (60, 0.1)]:
        written, read_back = kept(step)
        written[1]["metrics"] = {"val_reward": reward}
        events += [written, read_back]
    assert build_index([progress(1, started(), *events)], "val_reward").best == 40


def test_a_checkpoint_not_yet_read_back_is_listed_but_not_resumed() -> None:
    found = index(progress(1, started(), *kept(20, 3.0), saved(40, 1.0)))
    assert (found.resume_from, found.best) == (20, 20)
    assert [entry.verified for entry in found.entries] == [True, None]


def test_a_damaged_checkpoint_is_listed_as_such_and_passed_over_with_its_reason() -> None:
    found = index(progress(1, started(), *kept(20), saved(40), failed(40, "chunk 0 differs")))
    assert found.resume_from == 20
    assert [entry.verified for entry in found.entries] == [True, False]
    assert found.skipped == ((40, "chunk 0 differs"),)


def test_a_save_that_failed_before_a_later_good_one_is_no_news() -> None:
    found = index(progress(1, started(), failed(20, "no room left"), *kept(40)))
    assert found.skipped == ()


def test_what_a_resume_superseded_is_no_checkpoint_any_more() -> None:
    first = progress(1, started(), *kept(20), *kept(40), *kept(60))
    second = progress(2, started(20), metric(21))
    found = index(first, second)
    assert [entry.step for entry in found.entries] == [20]
    assert found.resume_from == 20


def test_a_start_from_scratch_keeps_the_newest_and_the_best_until_one_as_far_is_verified() -> None:
    first = progress(1, started(), *kept(20, 2.0), *kept(40, 3.0), *kept(60, 3.5))
    assert index(first).kept_behind(0) == [20, 60]
    found = index(first, progress(2, started(), metric(1)))
    assert (found.entries, found.resume_from, found.kept_superseded) == ((), None, [20, 60])
    found = index(first, progress(2, started(), *kept(20, 4.0), pruned(40)))
    assert (found.resume_from, found.kept_superseded) == (20, [60])
    assert found.kept_behind(0) == [60]
    found = index(first, progress(2, started(), *kept(20), pruned(40), *kept(60)))
    assert (found.resume_from, found.superseded) == (60, ())


def test_a_return_to_a_superseded_checkpoint_continues_its_history() -> None:
    first = progress(1, started(), *kept(20), *kept(60))
    second = progress(2, started(), *kept(10), metric(11))
    found = index(first, second, progress(3, started(60, saved_by=1), metric(61)))
    assert [entry.step for entry in found.entries] == [20, 60]
    assert found.resume_from == 60


def test_a_damaged_superseded_checkpoint_is_not_offered() -> None:
    first = progress(1, started(), *kept(20), *kept(40))
    second = progress(2, started(20, skipped=[{"step": 40, "reason": "chunk 0 differs"}]))
    assert index(first, second).superseded == ()


def test_a_step_saved_again_belongs_to_the_newer_attempt() -> None:
    first = progress(1, started(), *kept(20), *kept(40, 1.0))
    second = progress(2, started(20), *kept(40, 2.0))
    found = index(first, second)
    assert [(entry.step, entry.attempt) for entry in found.entries] == [(20, 1), (40, 2)]
    assert found.entries[1].metrics == {"val_loss": 2.0}


def test_a_damaged_checkpoint_is_reported_until_a_newer_one_is_verified() -> None:
    first = progress(1, started(), *kept(20), *kept(40))
    skipped = [{"step": 40, "reason": "model: chunk 0 differs"}]
    found = index(first, progress(2, started(20, skipped=skipped)))
    assert found.skipped == ((40, "model: chunk 0 differs"),)
    assert found.resume_from == 20
    found = index(first, progress(2, started(20, skipped=skipped), *kept(60)))
    assert (found.skipped, found.resume_from) == ((), 60)


def test_one_saved_again_in_place_of_a_damaged_one_is_whole() -> None:
    first = progress(1, started(), *kept(20), *kept(40))
    second = progress(2, started(20, skipped=[{"step": 40, "reason": "torn"}]), *kept(40))
    found = index(first, second)
    assert (found.skipped, found.resume_from) == ((), 40)
    assert [entry.verified for entry in found.entries] == [True, True]


def test_an_earlier_attempts_checkpoint_that_was_pruned_is_gone() -> None:
    first = progress(1, started(), *kept(20), *kept(40))
    found = index(first, progress(2, started(40), *kept(60), pruned(20)))
    assert [entry.step for entry in found.entries] == [40, 60]


def test_without_checkpoints_a_resume_starts_from_scratch() -> None:
    found = index(progress(1, started(), metric(1)))
    nothing: dict[str, Any] = {"checkpoints": [], "skipped": [], "superseded": []}
    assert found.to_dict() == {**nothing, "resume_from": None}
    assert found.best is None
    assert index().resume_from is None


def test_a_loss_that_is_no_number_is_never_best() -> None:
    found = index(progress(1, started(), *kept(20, float("nan")), *kept(40, float("inf"))))
    assert (found.best, found.resume_from) == (40, 40)


def test_of_equal_losses_the_earlier_checkpoint_is_best() -> None:
    assert index(progress(1, started(), *kept(20, 2.0), *kept(40, 2.0))).best == 20
