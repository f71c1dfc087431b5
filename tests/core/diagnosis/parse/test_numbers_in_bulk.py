"""Numbers that are read by the thousand are those that `float` makes of each one's text."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from trainer_runtime.core.diagnosis.parse import LogParser

_LINES = 3000
_FED_BYTES = 16 << 10
# How the numbers of a log are written, by a generator of the test's own.
WRITTEN: dict[str, Callable[[random.Random], str]] = {
    "always four digits behind the point": lambda rng: f"{rng.uniform(0, 90):.4f}",
    "none": lambda rng: str(rng.randrange(10**6)),
    "as many as it takes": lambda rng: str(rng.uniform(0, 3)),
    "more than 15 digits": lambda rng: f"{rng.uniform(0, 1e6):.12f}",
    "one or the other": lambda rng: f"{rng.uniform(0, 9):.{rng.choice((2, 3))}f}",
    "with signs": lambda rng: f"{rng.uniform(-1, 1):.2f}",
    "sometimes with a sign": lambda rng: f"{rng.uniform(-1, 40):.3f}",
    "with exponents": lambda rng: f"{rng.uniform(0, 1):.3e}",
    "with leading zeros": lambda rng: f"{rng.randrange(100):08.3f}",
    "few different ones": lambda rng: f"{rng.randrange(40) / 8:.3f}",
    "few, written in several ways": lambda rng: rng.choice(("1", "1.0", "1.00", "1e0", "-0.0")),
    "always negative": lambda rng: f"-{rng.randrange(3)}.{rng.randrange(10)}",
    "with any exponents": lambda rng: f"{rng.uniform(1, 9) * 10.0 ** rng.randrange(-40, 40):.4e}",
    "with exponents without signs": lambda rng: f"-{rng.uniform(1, 9):.3f}E{rng.randrange(9)}",
    "with commas": lambda rng: f"{rng.randrange(1000, 9999):,}.5",
    "not a number": lambda rng: rng.choice(("nan", "1.5")),
    "with a bare point": lambda rng: f"{rng.randrange(1, 9)}.",
    "few or any": lambda rng: f"{rng.choice((0.5, 2.25, rng.uniform(0, 3))):.5f}",
}


@pytest.mark.parametrize("written", WRITTEN)
def test_a_value_is_what_float_makes_of_its_text(written: str) -> None:
    rng = random.Random(written)
    loss = [WRITTEN[written](rng) for _ in range(_LINES)]
    rate = [f"{rng.uniform(0, 1):.6f}" for _ in range(_LINES)]
    lines = [
        f"step {i} | loss {one} | lr {other} | dt {i / 8:.1f}ms\n"
        for i, (one, other) in enumerate(zip(loss, rate, strict=True))
    ]
    log, parser = "".join(lines).encode(), LogParser()
    points = [
        point
        for begin in range(0, len(log), _FED_BYTES)
        for point in parser.feed(log[begin : begin + _FED_BYTES])
    ]
    points += parser.close()
    for key, texts in (("loss", loss), ("lr", rate)):
        found = [repr(point.value) for point in points if point.key == key]
        assert found == [repr(float(text.replace(",", ""))) for text in texts]
    times_s = [point.value for point in points if point.key == "step_time_s"]
    assert times_s == [float(f"{i / 8:.1f}") * 0.001 for i in range(_LINES)]
