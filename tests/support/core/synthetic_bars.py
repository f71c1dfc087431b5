"""Progress bars as programs print them, state after state, between carriage returns."""

from __future__ import annotations

import random
from collections.abc import Callable

_STEPS = 1_000_000


def made_bars(kind: str, states: int, seed: int = 0) -> bytes:
    """`states` states of a bar; the same for a seed."""
    source = random.Random(f"{kind} {seed}")
    return "".join(BARS[kind](source, step) for step in range(1, states + 1)).encode()


def _bar(source: random.Random, step: int, more: str = "") -> str:
    share, seconds, left = 100 * step // _STEPS, step // 7, (_STEPS - step) // 7
    fill = "█" * (share // 10) + "▏▎▍▌▋▊▉"[step % 7] + " " * (9 - share // 10)
    return (
        f"{share:3d}%|{fill}| {step}/{_STEPS} [{_clock(seconds)}<{_clock(left)}, "
        f" {source.uniform(6, 8):.2f}it/s{more}]"
    )


def _clock(seconds: int) -> str:
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def plain(source: random.Random, step: int) -> str:
    return "\r" + _bar(source, step)


def named(source: random.Random, step: int) -> str:
    return "\rTokenizing: " + _bar(source, step)


def with_loss(source: random.Random, step: int) -> str:
    return "\rEpoch 1: " + _bar(source, step, f", loss={source.uniform(2, 3):.4f}, lr=3e-05")


def huggingface(source: random.Random, step: int) -> str:
    """A metric line every ten steps, between two states."""
    bar = plain(source, step)
    if step % 10:
        return bar
    metrics = {"loss": round(source.uniform(2, 3), 4), "epoch": step / 1000}
    return f"{bar}\n\r{' ' * 60}\r{metrics}{bar}"


BARS: dict[str, Callable[[random.Random, int], str]] = {
    maker.__name__: maker for maker in (plain, named, with_loss, huggingface)
}
