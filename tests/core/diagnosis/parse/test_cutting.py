"""The points do not depend on how the stream is cut or when the parser is saved and restored."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.core.parsed_logs import parsed_items
from support.core.synthetic_logs import DIALECTS, made_log, noise, reordered_json
from support.session.tiers import at_length

from trainer_runtime.core.diagnosis.parse import LogParser

_HF_WITH_BARS = "".join(
    f"\r {step * 5:2d}%|{'█' * (step // 2)}{' ' * (10 - step // 2)}| {step}/20"
    " [00:01<00:02,  2.0it/s]"
    + (
        f"\r{' ' * 40}\r{{'loss': '{7 - step / 10:.4g}', 'grad_norm': '1.1', 'epoch': '0.0{step}'}}"
        f"\n\r {step * 5}%|██ | {step}/20 [00:01<00:02,  2.0it/s]"
        if step % 5 == 0
        else ""
    )
    for step in range(1, 21)
).encode()
_JUNK = bytes(random.Random(5).randrange(256) for _ in range(3000))


def _mixed() -> bytes:
    """A log of everything: short pieces of each dialect, bars, noise, junk, a line too long."""
    pieces = [made_log(dialect, 25) for dialect in DIALECTS]
    pieces += [_HF_WITH_BARS, noise(30), _JUNK, b"\xff\xfe\n", reordered_json(20)]
    pieces += [b"step=1 loss=2.0\r\nstep=2 loss=1.0\r\n", b"x" * 70_000 + b" step=9 loss=9\n"]
    pieces += [b"[rank1]: step=7 loss=3.5\n[rank0]: step=7 loss=3.25\n", b"step=3 loss=7.0"]
    return b"".join(pieces)


_MIXED = _mixed()
_WHOLE = parsed_items(_MIXED)
cuts = st.lists(st.integers(0, len(_MIXED)), max_size=40)


def test_a_line_that_has_a_step_alone_leaves_the_row_above_it_at_its_own() -> None:
    parser, saved = LogParser(), LogParser()
    for line in (b"iter 6: loss 1.1669, time 20.50ms, mfu 4.50%\n", b"[step=0/500]\n"):
        saved.feed(line)
        parser.feed(line)
        saved = LogParser.from_dict(saved.to_dict())
    assert saved.to_dict() == parser.to_dict()


@pytest.mark.parametrize("seed", [0, 1, *at_length(*range(2, 6))])
def test_evaluations_among_steps_that_fall_or_stay_are_read_alike_in_bulk_and_singly(
    seed: int,
) -> None:
    chosen = random.Random(seed)
    falls, rises = 0.002 * (seed % 3), 0.98 if seed % 2 else 1.0
    lines, step = [], 0
    for _ in range(1500):
        step = 0 if chosen.random() < falls else step + (chosen.random() < rises)
        lines.append(f"s:{step} trl:{chosen.random():.4f}\n".encode())
        if chosen.random() < 0.05:
            lines.append(f"s:{step} tel:{chosen.random():.4f}\n".encode())
    log = b"".join(lines)
    ends = [sum(map(len, lines[:number])) for number in range(1, len(lines), 7)]
    assert parsed_items(log, ends) == parsed_items(log)


@pytest.mark.parametrize("seed", [0, 1, *at_length(*range(2, 6))])
def test_lines_among_bars_are_read_alike_in_bulk_and_singly(seed: int) -> None:
    chosen = random.Random(seed)
    kinds = ["repeat", "fall", "other total", "no bar", "NaN"][: seed or None]
    lines, step, line = [], 0, b""
    for _ in range(500):
        odd = chosen.choice(kinds) if chosen.random() < 0.03 else ""
        step = 0 if odd == "fall" else step + chosen.randrange(3)
        bar = b" 5%%|##   | %d/%d [00:01<00:02,  2.0it/s]\r" % (
            step,
            90 if odd[:5] == "other" else 9000,
        )
        loss = "nan" if odd == "NaN" else f"{chosen.random():.4f}"
        if odd != "repeat":
            line = f"{{'loss': {loss}, 'grad_norm': 1.5, 'epoch': {step / 1000:.2f}}}\n".encode()
        lines += [bar, line] if odd == "no bar" else [bar, b"\r", line, bar]
    log = b"".join(lines)
    ends = [sum(map(len, lines[:number])) for number in range(1, len(lines), 5)]
    assert parsed_items(log, ends) == parsed_items(log)


def test_the_mixed_log_says_something() -> None:
    assert len(_WHOLE) > 1500


@pytest.mark.slow
@settings(max_examples=25)
@given(cuts)
def test_any_cutting_gives_the_same(where: list[int]) -> None:
    assert parsed_items(_MIXED, where) == _WHOLE


@settings(max_examples=15)
@given(cuts)
def test_a_parser_that_was_saved_and_restored_at_any_cut_gives_the_same(where: list[int]) -> None:
    assert parsed_items(_MIXED, where, through_json=True) == _WHOLE


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 4096])
def test_pieces_of_any_size_give_the_same(size: int) -> None:
    log = _MIXED if size > 64 else _MIXED[:12_000]
    assert parsed_items(log, range(0, len(log), size)) == parsed_items(log)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_in_bulk_and_line_by_line_every_dialect_reads_the_same(dialect: str) -> None:
    log = made_log(dialect, 700, seed=1)
    edges = [i + 1 for i, byte in enumerate(log) if byte == 10]
    assert parsed_items(log, edges, through_json=dialect == "nanogpt") == parsed_items(log)


def test_a_state_of_another_format_is_refused() -> None:
    state = LogParser().to_dict()
    with pytest.raises(ValueError, match="format"):
        LogParser.from_dict({**state, "format": 99})
