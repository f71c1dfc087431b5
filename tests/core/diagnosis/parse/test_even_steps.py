"""Steps that rise evenly, or nearly so, are read as their own numbers."""

from __future__ import annotations

from itertools import pairwise

import pytest

from trainer_runtime.core.diagnosis.parse import LogParser

_EVEN = {
    "one by one": range(3000),
    "across powers of ten": range(99_500, 101_500),
    "every tenth": range(0, 30_000, 10),
    "every seventh": range(5, 20_000, 7),
    "beyond a billion": range(3_999_999_000, 4_000_001_000),
}
_UNEVEN = {
    "one is left out": [*range(1000, 1700), *range(1701, 2500)],
    "one is repeated, the next left out": [*range(1000, 1700), 1699, *range(1701, 2500)],
    "two change places": [*range(1000, 1700), 1701, 1700, *range(1702, 2500)],
    "they begin again": [*range(1000), *range(1000)],
    "farther and farther": [step * step for step in range(1000)],
}


@pytest.mark.parametrize("name", [*_EVEN, *_UNEVEN])
def test_steps_are_the_numbers_that_are_printed(name: str) -> None:
    steps = list(_EVEN.get(name, _UNEVEN.get(name, ())))
    log = "".join(f"step {step} | loss {3 - i / 1e4:.4f}\n" for i, step in enumerate(steps))
    parsed = LogParser().feed(log.encode())
    assert [point.step for point in parsed] == steps
    falls = [later < step for step, later in pairwise(steps)]
    assert max(point.segment for point in parsed) == sum(falls)


@pytest.mark.parametrize("written", ["{:05d}", "{:,d}", "{:.1f}", "+{}"])
def test_steps_in_another_form_are_read_alike_in_bulk_and_one_by_one(written: str) -> None:
    lines = [f"step {written.format(at)} | loss {3 - at / 1e4:.4f}\n" for at in range(900, 1900)]
    whole, single = LogParser(), LogParser()
    in_bulk = list(whole.feed("".join(lines).encode()))
    singly = [point for line in lines for point in single.feed(line.encode())]
    assert [(point.step, point.value) for point in in_bulk] == [
        (point.step, point.value) for point in singly
    ]
