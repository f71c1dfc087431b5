"""Lines that are read by arrays give exactly what the parser finds in them without."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Mapping, Sequence

import pytest
from support.core.parsed_logs import items_of
from support.core.synthetic_logs import DIALECTS, made_log

from trainer_runtime.core.diagnosis.parse import LogParser
from trainer_runtime.core.diagnosis.parse.line_table import Tabulate
from trainer_runtime.core.diagnosis.parse.token_places import TokenPlace
from trainer_runtime.core.diagnosis.parse.tokens import Tokens
from trainmaster.metrics.line_arrays import LineArrays
from trainmaster.metrics.series_arrays import bucketed
from trainmaster.store.buckets import of_columns

_LINES = 12_000
_FED_BYTES = 100_000
# Numbers, most of them of the same width, by a generator of the test's own.
_WRITTEN: dict[str, Callable[[random.Random], str]] = {
    "with a point": lambda rng: f"{rng.uniform(1, 9):.4f}",
    "with leading zeros": lambda rng: f"{rng.randrange(100):08.3f}",
    "with 15 digits": lambda rng: f"{rng.uniform(1, 9):.14f}",
    "with more than 15 digits": lambda rng: f"{rng.uniform(1, 9):.16f}",
    "with signs": lambda rng: f"{rng.choice((-1, 1, -0.0)) * rng.uniform(1, 9):.2f}",
    "always negative": lambda rng: f"-{rng.randrange(3)}.{rng.randrange(10)}",
    "with exponents": lambda rng: f"{rng.uniform(0.0001, 0.0009):.3e}",
    "with any exponents": lambda rng: f"{rng.uniform(1, 9) * 10.0 ** rng.randrange(-9, 9):.4e}",
    "with large exponents": lambda rng: f"{rng.uniform(1, 9):.13f}e+{rng.randrange(10, 40)}",
    "with small exponents": lambda rng: f"{rng.uniform(1, 9):.5f}E-{rng.randrange(10, 40)}",
    "with exponents without signs": lambda rng: f"-{rng.uniform(1, 9):.3f}e{rng.randrange(9)}",
    "with commas": lambda rng: f"{rng.randrange(1000, 9999):,}.5",
    "not a number": lambda rng: rng.choice(("nan", "1.5")),
    "with a bare point": lambda rng: f"{rng.randrange(1, 9)}.",
}


class _Counted(LineArrays):
    """Counts how often it was asked for tokens."""

    rows = 0

    def tokens(self, places: Mapping[bytes, Sequence[TokenPlace]]) -> Tokens:
        found = super().tokens(places)
        type(self).rows += found.rows
        return found


def _found(log: bytes, tabulate: Tabulate | None) -> list[object]:
    parser, items = LogParser(tabulate=tabulate), []
    for begin in range(0, len(log), _FED_BYTES):
        items += items_of(parser.feed(log[begin : begin + _FED_BYTES]))
    items += items_of(parser.close())
    return [*sorted(items, key=repr), parser.to_dict()]


def _assert_read_alike(log: bytes, rows: int) -> None:
    """At least so many of its lines are read by arrays."""
    _Counted.rows = 0
    assert _found(log, _Counted) == _found(log, None)
    assert _Counted.rows >= rows


@pytest.mark.parametrize("written", _WRITTEN)
def test_numbers_in_one_place_are_what_float_makes_of_each(written: str) -> None:
    rng = random.Random(written)
    lines = [
        f"step {i:06d} | loss {_WRITTEN[written](rng)} | lr 0.5 | dt {i % 8}.25ms"
        for i in range(_LINES)
    ]
    _assert_read_alike("\n".join(lines).encode(), _LINES // 2)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_dialect_is_read_alike_wherever_it_begins_again(dialect: str) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    lines = made_log(dialect, 3000, seed).splitlines(keepends=True)
    others = [b"\n", b"step 7 loss 1.5\n", b"no numbers here\n", b"[12:30] 7 of 9 loaded\n"]
    log = b""
    for _ in range(4):
        begin, end = sorted(rng.sample(range(len(lines)), 2))
        log += rng.choice(others) * rng.choice((0, 1, 200)) + b"".join(lines[begin:end])
    _assert_read_alike(log, 0)


def test_lines_of_several_kinds_shapes_and_ranks_are_read_alike() -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng, step, lines = random.Random(seed), 0, []
    for _ in range(_LINES):
        step = rng.choice((step + 1,) * 200 + (step, step + 5, 0, max(0, step - 50)))
        rank = "" if len(lines) < _LINES // 2 else f"[rank{rng.randrange(3)}]: "
        kind = rng.choice(("loss {:.2f}", "loss {:.3f}", "val_loss {:.2f} lr {:.1f}"))
        lines.append(
            f"{rank}step {step:05d} {kind.format(rng.uniform(1, 11), rng.uniform(0, 0.9))}"
        )
        lines += rng.choice(([],) * 50 + ([""], ["loading 5 of 9"], [lines[-1]], ["step 3 done"]))
    _assert_read_alike("\n".join(lines).encode(), _LINES // 2)


@pytest.mark.parametrize("size", [64, 128, 1024])
def test_buckets_are_those_of_each_part_of_the_columns(size: int) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng, count = random.Random(seed), 8 * size
    odd = (float("nan"), float("inf"), -float("inf"), 1e308, 0.0, -0.0)
    values = array("d", [rng.gauss(0, 1) * 10 ** rng.randrange(-3, 4) for _ in range(count)])
    for _ in range(rng.randrange(4)):
        at = rng.randrange(count)
        values[at : at + 2] = array("d", [rng.choice(odd)] * len(values[at : at + 2]))
    steps = array("q", [rng.randrange(9999) for _ in range(count)])
    times = array("d", [rng.choice((float("nan"), float(i))) for i in range(count)])
    parts = [slice(begin, begin + size) for begin in range(0, count, size)]
    expected = [of_columns(steps[part], times[part], values[part].tolist()) for part in parts]
    assert repr(bucketed(steps, times, values, size)) == repr(expected)
