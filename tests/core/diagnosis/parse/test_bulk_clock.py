"""Steps and segments are the same whether a block's rows are settled at once or one by one."""

from __future__ import annotations

import random

import pytest
from support.core.mixed_logs import mixed_log
from support.core.parsed_logs import parsed_items
from support.session.tiers import at_length

from trainer_runtime.core.diagnosis.parse import LogParser


@pytest.mark.parametrize("seed", [*range(20), *at_length(*range(20, 60))])
def test_lines_of_any_kinds_are_settled_alike_at_once_and_line_by_line(seed: int) -> None:
    log = mixed_log(random.Random(seed))
    ends = [at + 1 for at, byte in enumerate(log) if byte == 10]
    assert parsed_items(log, ends)[:-1] == parsed_items(log)[:-1]


def test_lines_of_trainings_that_begin_again_stay_in_one_batch_by_kind() -> None:
    training = "".join(
        f"iter {step}: loss {5 - step / 10:.4f}, time 20.50ms, mfu 4.50%\n" for step in range(9)
    )
    log = (training + "step 9: train loss 4.1, val loss 4.2\n") * 200
    parsed = LogParser().feed(log.encode())
    assert len(parsed.batches) <= 4  # of the first lines of each kind, and of the others
    assert {point.segment for point in parsed} == set(range(200))
