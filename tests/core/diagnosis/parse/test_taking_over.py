"""A parser that begins anywhere finds the same points where its guess of the state was right."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

import pytest
from support.core.mixed_logs import mixed_log
from support.core.parsed_logs import Item, items_of
from support.core.synthetic_bars import BARS, made_bars
from support.core.synthetic_logs import DIALECTS, made_log
from support.session.tiers import at_length

from trainer_runtime.core.diagnosis.parse import Coverage, LogParser, Parsed
from trainer_runtime.core.diagnosis.parse.rank_state import Shift, shifted_step


def _shifted(parsed: Parsed, shifts: dict[int, Shift]) -> list[Item]:
    """The points, as they follow from the state that was taken over."""
    batches = []
    for batch in parsed.batches:
        shift = shifts.get(batch.rank, Shift())
        steps = [shifted_step(step, shift) for step in batch.steps]
        segments = [segment + shift.segments for segment in batch.segments]
        batches.append(replace(batch, steps=steps, segments=segments))
    return sorted(items_of(Parsed(batches)), key=repr)


def _is_taken_over(log: bytes, known: int, jumped_to: int, begin: int, end: int) -> bool:
    """Whether the guess after `known` bytes, read on from the line at `jumped_to`, was right at
    `begin`; if it was, the points up to `end` must be the same."""
    parser = LogParser()
    parser.feed(log[:known])
    other = copy.deepcopy(parser)
    parser.feed(log[known:begin])
    other.jump(jumped_to)
    other.feed(log[jumped_to:begin])
    other.coverage = Coverage()
    state = other.to_dict()
    guessed = other.feed(log[begin:end])
    true = copy.deepcopy(parser)
    expected = sorted(items_of(Parsed(true.feed(log[begin:end]).batches)), key=repr)
    before = parser.to_dict()
    shifts = parser.take_over(state, other.to_dict())
    if shifts is None:
        assert parser.to_dict() == before
        return False
    assert _shifted(guessed, shifts) == expected
    parser.coverage.samples = true.coverage.samples  # depend on what was learnt of noise
    assert parser.to_dict() == true.to_dict()
    return True


def _line_begin(log: bytes, at: int) -> int:
    ends = [found for end in (b"\n", b"\r") if (found := log.find(end, at)) >= 0]
    return min(ends, default=len(log) - 1) + 1


@pytest.mark.parametrize("name", [*DIALECTS, *(f"bars {kind}" for kind in BARS)])
def test_in_the_log_of_every_framework_the_guess_is_right(name: str) -> None:
    kind = name.removeprefix("bars ")
    log = made_log(kind, 4000) if kind in DIALECTS else made_bars(kind, 4000)
    size = len(log)
    begin = size * 3 // 4
    jumped_to = _line_begin(log, size // 2)
    assert _is_taken_over(log, size // 4, jumped_to, begin, size)


@pytest.mark.parametrize("seed", [*range(6), *at_length(*range(6, 60))])
def test_where_lines_of_any_kinds_alternate_no_wrong_guess_is_taken_over(seed: int) -> None:
    chosen = random.Random(seed)
    log = mixed_log(chosen)
    for _ in range(5):
        known, at, begin, end = sorted(chosen.randrange(len(log)) for _ in range(4))
        jumped_to = min(_line_begin(log, at), begin)
        if log[jumped_to - 1 : jumped_to] in (b"\n", b"\r"):
            _is_taken_over(log, known, jumped_to, begin, end)


@pytest.mark.parametrize("fact_is_above", [True, False])
def test_counted_steps_are_not_taken_over_where_a_fact_gives_others(fact_is_above: bool) -> None:
    lines = made_log("huggingface4", 400).splitlines(keepends=True)
    lines.insert(150 if fact_is_above else 350, b"  Num update steps per epoch = 10\n")
    at = [sum(map(len, lines[:number])) for number in (100, 200, 300, 400)]
    assert not _is_taken_over(b"".join(lines), *at)


def test_counted_steps_are_taken_over_between_lines_of_another_clock_with_steps() -> None:
    lines = []
    for number in range(900):
        lines.append(
            f"{{'loss': {3 - number / 1e3:.3f}, 'grad_norm': 1.5, 'learning_rate': 1e-05}}\n"
        )
        if number % 50 == 0:
            lines.append("step: 7 lr: 0.125 loss: 2.5\n")
    log = "".join(lines).encode()
    jumped_to = _line_begin(log, len(log) // 2)
    assert _is_taken_over(log, len(log) // 4, jumped_to, len(log) * 3 // 4, len(log))


_OF_ANY_CLOCK = (
    "{{'loss': {value}, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.01}}",
    "{{'eval_loss': {value}, 'eval_runtime': 1.5, 'epoch': 0.01}}",
    "step={step} loss={value} lr=0.1",
    "step: {step} val_loss: {value}",
    "validation loss {value}",
    "Epoch {step} - loss: {value}",
)


@pytest.mark.parametrize("seed", [*range(4), *at_length(*range(4, 40))])
def test_no_count_is_taken_over_on_which_other_lines_depend(seed: int) -> None:
    chosen, lines, step = random.Random(seed), [], 0
    kinds = chosen.sample(_OF_ANY_CLOCK, chosen.randrange(2, 6))
    for _ in range(chosen.randrange(20, 160)):
        step = chosen.randrange(4) if chosen.random() < 0.03 else step + chosen.randrange(2)
        value = chosen.choice(("3.2", "0.5"))
        lines.append(chosen.choice(kinds).format(step=step, value=value) + "\n")
    log = "".join(lines).encode()
    for _ in range(10):
        known, at, end = sorted(chosen.randrange(len(log)) for _ in range(3))
        begin = max(at, min(_line_begin(log, at), end))
        _is_taken_over(log, min(known, at), begin, begin, end)
