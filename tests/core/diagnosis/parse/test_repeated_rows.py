"""Lines that are printed twice count once, however many come together and however they differ."""

from __future__ import annotations

import random

import pytest
from support.core.parsed_logs import parsed_items
from support.session.tiers import at_length

_LINES = 900


@pytest.mark.parametrize("seed", [0, *at_length(*range(1, 8))])
@pytest.mark.parametrize("form", ["json", "hf", "text"])
def test_rows_repeat_the_one_above_alike_in_bulk_and_one_by_one(form: str, seed: int) -> None:
    rng = random.Random(f"{form} {seed}")
    log = "".join(_lines(form, rng)).encode()
    ends = [at + 1 for at, byte in enumerate(log) if byte == 10]
    assert parsed_items(log, ends)[:-1] == parsed_items(log)[:-1]


def _lines(form: str, rng: random.Random) -> list[str]:
    lines: list[str] = []
    for step in range(_LINES):
        values = [rng.choice(("0.5", "0.50", "1e-2", "0.01", "2.25", "NaN")) for _ in range(3)]
        times = rng.choice((1, 2, 2, 3))
        lines += [_line(form, step, values)] * times
        if rng.random() < 0.1:  # almost the same
            values[rng.randrange(3)] = rng.choice(("0.5", "0.01", "7.5"))
            lines.append(_line(form, step, values))
    return lines


def _line(form: str, step: int, values: list[str]) -> str:
    loss, norm, rate = values
    if form == "json":
        return f'{{"loss": {loss}, "grad_norm": {norm}, "learning_rate": {rate}, "step": {step}}}\n'
    if form == "hf":
        epoch = step / 100
        return (
            f"{{'loss': {loss}, 'grad_norm': {norm}, 'learning_rate': {rate}, 'epoch': {epoch}}}\n"
        )
    return f"step {step} | loss {loss} | grad_norm {norm} | lr {rate}\n"
