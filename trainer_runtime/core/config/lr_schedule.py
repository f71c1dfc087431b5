"""Learning-rate schedules: the factor on the peak rate, as a pure function of the step.

Steps are counted from 1: step `warmup_steps` is the first at the full rate, step `total_steps` the
last one. Nothing is kept between steps, so a resumed run needs no schedule state.
"""

from __future__ import annotations

import math
from collections.abc import Callable

# The share of the steps after the warm-up in which `wsd` decays; 10-20 % in the paper's figure 5.
WSD_DECAY_SHARE = 0.2
# Of `lr-test`: the rate rises until the loss diverges, and no model is kept.
RANGE_TEST = "range_test"
# Of an exponential warm-up.
_TIME_CONSTANTS = 4.0


def lr_factor(
    kind: str,
    step: int,
    total_steps: int,
    warmup_steps: int,
    min_lr_ratio: float,
    *,
    warmup: str = "linear",
    power: float = 1.0,
    cycles: int = 1,
) -> float:
    """The factor of step `step` (from 1), at least `min_lr_ratio` once the warm-up is over.

    `power` is of `polynomial`, `cycles` of `cosine_restarts`.

    Raises:
        KeyError: the schedule or the warm-up is unknown.
    """
    shape = SCHEDULES[kind]
    if step <= warmup_steps:
        return WARMUPS[warmup](step / warmup_steps)
    if kind == "inverse_sqrt":
        return max(min_lr_ratio, inverse_sqrt(step, warmup_steps))
    progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    if kind == RANGE_TEST:
        return exponential_rise(progress, min_lr_ratio)
    if kind == "cosine_restarts" and progress < 1.0:
        progress = progress * cycles % 1.0
    share = shape(progress) ** power if kind == "polynomial" else shape(progress)
    return min_lr_ratio + (1.0 - min_lr_ratio) * share


def linear_warmup(progress: float) -> float:
    """In equal steps (Goyal et al. 2017, arXiv:1706.02677, section 2.2)."""
    return progress


def exponential_warmup(progress: float) -> float:
    """1 - exp(-t / τ) (Ma & Yarats 2019, arXiv:1910.04209, section 5.1), steep first: the warm-up
    lasts for 4 τ, and is scaled by 1.02 to end at the peak."""
    return math.expm1(-_TIME_CONSTANTS * progress) / math.expm1(-_TIME_CONSTANTS)


def cosine(progress: float) -> float:
    """Half a cosine without restarts (Loshchilov & Hutter 2016, arXiv:1608.03983, equation 5)."""
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def linear(progress: float) -> float:
    """A straight line to the minimum (Devlin et al. 2018, arXiv:1810.04805, appendix A.2); to a
    power, `polynomial`."""
    return 1.0 - progress


def constant(progress: float) -> float:
    """The peak rate throughout."""
    return 1.0


def warmup_stable_decay(progress: float) -> float:
    """Constant, then 1 - sqrt over the last part (Hägele et al. 2024, arXiv:2405.18392)."""
    decaying = (progress - (1.0 - WSD_DECAY_SHARE)) / WSD_DECAY_SHARE
    return 1.0 if decaying <= 0.0 else 1.0 - math.sqrt(min(1.0, decaying))


def exponential_rise(progress: float, start: float) -> float:
    """From `start` to 1 by one factor a step, so that each decade of rates has as many steps."""
    return math.pow(start, 1.0 - progress)


def inverse_sqrt(step: int, warmup_steps: int) -> float:
    """1 / sqrt(step), 1 at the end of the warm-up (Vaswani et al. 2017, arXiv:1706.03762, 3)."""
    return math.sqrt(max(1, warmup_steps) / step)


SCHEDULES: dict[str, Callable[[float], float]] = {
    "cosine": cosine,
    "linear": linear,
    "polynomial": linear,
    "cosine_restarts": cosine,  # with restarts, in cycles of one length: equation 5 with T_mult 1
    "constant": constant,
    "wsd": warmup_stable_decay,
    "inverse_sqrt": constant,
    RANGE_TEST: constant,  # which `exponential_rise` stands for
}
WARMUPS: dict[str, Callable[[float], float]] = {
    "linear": linear_warmup,
    "exponential": exponential_warmup,
}
