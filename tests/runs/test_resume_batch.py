"""The batch of a resume is a whole step's, whatever the host has changed meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.plan.changes.batch import of_one_batch


def batch(micro_batch: int, accumulation: int) -> dict[str, Any]:
    return {
        "batch": {"micro_batch": micro_batch, "accumulation": accumulation},
        "derived": {"sequences_per_step": micro_batch * accumulation},
    }


MICRO, TIMES, STEP = "batch.micro_batch", "batch.accumulation", "derived.sequences_per_step"
PATCH = {MICRO: 4, TIMES: 8}
HALVED = {MICRO: 8, TIMES: 4}  # by the host: the plan had 16 and 2


@pytest.mark.parametrize(
    ("changed", "asked", "patched", "planned", "sent"),
    [
        ({"eval.every_steps": 5}, ["eval.every_steps"], {}, (16, 2), {"eval.every_steps": 5}),
        ({TIMES: 4, STEP: 64}, ["batch.tokens"], {}, (16, 4), {MICRO: 8, TIMES: 8, STEP: 64}),
        ({MICRO: 32, STEP: 64}, ["batch.tokens"], {}, (32, 2), {MICRO: 8, TIMES: 8, STEP: 64}),
        ({MICRO: 12, TIMES: 1}, ["batch.tokens"], {}, (12, 1), {MICRO: 12, TIMES: 1, STEP: 12}),
        ({}, [MICRO], {}, (16, 2), {MICRO: 16, TIMES: 2}),
        ({MICRO: 4, TIMES: 8}, [MICRO], {}, (4, 8), {MICRO: 4, TIMES: 8}),
        ({**PATCH, STEP: 48}, [], PATCH, (4, 12), PATCH),
        (PATCH, ["batch.tokens"], PATCH, (4, 16), {MICRO: 4, TIMES: 16, STEP: 64}),
    ],
    ids=[
        "something else",
        "another batch in the host's micro-batches",
        "another batch for which other pieces were planned",
        "a batch that they do not divide",
        "the plan's pieces asked for again",
        "other pieces",
        "a patch, exactly",
        "a patch and another batch",
    ],
)
def test_pieces_and_their_number_make_the_batch_that_was_asked_for(
    changed: dict[str, Any],
    asked: list[str],
    patched: dict[str, Any],
    planned: tuple[int, int],
    sent: dict[str, Any],
) -> None:
    newest = batch(HALVED[MICRO], HALVED[TIMES])
    assert of_one_batch(changed, asked, patched, batch(*planned), newest) == sent


def test_a_step_counts_the_sequences_of_every_process() -> None:
    planned = {**batch(4, 4), "compute": {"processes": 2}}
    newest = {**batch(4, 8), "derived": {"sequences_per_step": 64}}
    sent = of_one_batch({TIMES: 4}, ["batch.tokens"], {}, planned, newest)
    assert sent == {MICRO: 4, TIMES: 4, STEP: 32}
