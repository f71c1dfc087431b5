"""Learning rate, warm-up and batch arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from trainer_runtime.core.protocol.figures import rounded

# Brown et al. 2020 (GPT-3), table 2.1: parameters and highest learning rate.
_GPT3_RATES = (
    (125e6, 6e-4),
    (350e6, 3e-4),
    (760e6, 2.5e-4),
    (1.3e9, 2e-4),
    (2.7e9, 1.6e-4),
    (6.7e9, 1.2e-4),
    (13e9, 1e-4),
    (175e9, 0.6e-4),
)
# The tokens of a step of those models, by the same table; Kaplan et al. 2020 trained with as many.
_GPT3_BATCHES = (
    (760e6, 1 << 19),
    (2.7e9, 1 << 20),
    (13e9, 1 << 21),
)
_LARGEST_BATCH = 3_200_000
# By less than this a batch does not change what its rate is.
_BATCH_FACTOR = 2
_HIGHEST_RATE = 2e-3
GPT3_SOURCE = "Brown et al. 2020 (GPT-3), table 2.1, interpolated by the logarithm of the size"
KAPLAN_SOURCE = "Kaplan et al. 2020, equation D.1: 0.003239 - 0.0001395 ln N, at most 0.002"
LONGEST_WARMUP_STEPS = 2000


def learning_rate(parameters: int) -> tuple[float, str]:
    """The highest learning rate for AdamW by the model's size, and its source.

    Below GPT-3's smallest model, Kaplan's rule of thumb, which meets the table there.
    """
    smallest, at_smallest = _GPT3_RATES[0]
    if parameters <= smallest:
        rate = 0.003239 - 0.0001395 * math.log(max(parameters, 1))
        return _two_digits(min(_HIGHEST_RATE, max(rate, at_smallest))), KAPLAN_SOURCE
    for (below, upper), (above, lower) in pairwise(_GPT3_RATES):
        if parameters <= above:
            share = math.log(parameters / below) / math.log(above / below)
            return _two_digits(upper * (lower / upper) ** share), GPT3_SOURCE
    return _GPT3_RATES[-1][1], GPT3_SOURCE


def usual_batch(parameters: int) -> int:
    """Tokens of a step that `learning_rate` is for."""
    return next((of for most, of in _GPT3_BATCHES if parameters <= most), _LARGEST_BATCH)


def rate_by_batch(rate: float, usual: int, tokens: int) -> str:
    """What the usual scalings would make of a rate for steps of `usual` tokens, in a sentence;
    nothing where the step has about as many."""
    ratio = tokens / usual
    if 1 / _BATCH_FACTOR < ratio < _BATCH_FACTOR:
        return ""
    root, linear = _two_digits(rate * math.sqrt(ratio)), _two_digits(rate * ratio)
    return (
        f" That is for steps of {usual:,} tokens. For {tokens:,} it would be {root:g} by the "
        f"square root (Malladi et al. 2022) and {linear:g} linearly (Goyal et al. 2017); neither "
        "is applied."
    )


def warmup_steps(steps: int) -> int:
    """2 % of the steps, at most 2000; short runs take up to a tenth, so that Adam's moments settle.

    The tenth counts up to 100 steps: 200 steps warm up for 20, 10,000 for 200.
    """
    minimum = min(100, steps // 10)
    return min(LONGEST_WARMUP_STEPS, max(round(steps * 0.02), minimum))


@dataclass(frozen=True, slots=True)
class Batch:
    """One optimizer step: each of `processes` makes `accumulation` passes of `micro_batch`."""

    micro_batch: int
    accumulation: int
    seq_len: int
    processes: int = 1

    @property
    def sequences(self) -> int:
        return self.micro_batch * self.accumulation * self.processes

    @property
    def tokens(self) -> int:
        return self.sequences * self.seq_len


def whole_batch(tokens: int, seq_len: int, micro_batch: int, processes: int = 1) -> Batch:
    """The largest batch of at most `tokens` that consists of whole micro-batches, at least one."""
    accumulation = max(1, tokens // (seq_len * micro_batch * processes))
    return Batch(micro_batch, accumulation, seq_len, processes)


def choose_micro_batch(sequences: int, most: int) -> int:
    """How many of a step's `sequences` go through at once, `most` at the utmost.

    The largest divisor, so that the step's size stays as asked; where that is far below `most`
    (a prime number of sequences), the largest power of two instead.
    """
    most = max(1, min(most, sequences))
    divisor = max(n for n in range(1, most + 1) if sequences % n == 0)
    return divisor if divisor * 4 >= most else 1 << (most.bit_length() - 1)


def _two_digits(rate: float) -> float:
    return rounded(rate, 2)
