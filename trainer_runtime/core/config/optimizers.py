"""The optimizers: what planning estimates by and what the host builds, one record each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Decay = Literal["decoupled", "l2"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerRecord:
    """What is particular to an optimizer.

    `package`: the distribution that has it, `class_name` in it; `since`: the first PyTorch.
    `state_bytes`: of its state for each fp32 parameter; `matrix_bytes`: for those of the blocks'
    matrices, where they are fewer.
    `betas`, `momentum`, `eps`: its usual ones; None where it has no such value.
    `decay`: what its own class does with `weight_decay`, None: nothing.
    `rate`: its usual learning rate as a multiple of AdamW's, None where nobody has published one;
    `rate_source`: who says so.
    `by_element`: an element's update depends on its own gradients alone, so that ranks may keep any
    parts of the parameters.
    `averages`: it evaluates other weights than it trains.
    """

    class_name: str
    package: str = "torch"
    since: str = "2.3"
    state_bytes: float
    matrix_bytes: float | None = None
    betas: tuple[float, float] | None = None
    momentum: float | None = None
    eps: float | None = None
    decay: Decay | None = "decoupled"
    rate: float | None = None
    rate_source: str = ""
    by_element: bool = True
    averages: bool = False


_ADAM_BETAS = (0.9, 0.95)
OPTIMIZERS: Mapping[str, OptimizerRecord] = {
    "adamw": OptimizerRecord(
        class_name="AdamW", state_bytes=8, betas=_ADAM_BETAS, eps=1e-8, rate=1.0
    ),
    "adam": OptimizerRecord(
        class_name="Adam",
        state_bytes=8,
        betas=_ADAM_BETAS,
        eps=1e-8,
        decay="l2",
        rate=1.0,
        rate_source="Loshchilov & Hutter 2017 (arXiv 1711.05101), algorithm 2: AdamW's own step",
    ),
    "sgd": OptimizerRecord(class_name="SGD", state_bytes=4, momentum=0.9, decay="l2"),
    "adafactor": OptimizerRecord(
        class_name="Adafactor",
        since="2.5",
        state_bytes=0.1,
        rate=1.0,
        rate_source="Zhao et al. 2024 (arXiv 2407.07972): Adafactor does as Adam over all rates",
        by_element=False,
    ),
    "muon": OptimizerRecord(
        class_name="Muon",
        since="2.9",
        state_bytes=8,
        matrix_bytes=4,
        betas=_ADAM_BETAS,
        momentum=0.95,
        eps=1e-8,
        rate=1.0,
        rate_source=(
            "Liu et al. 2025 (arXiv 2502.16982), section 2.2: updates of AdamW's size take "
            "AdamW's rate"
        ),
        by_element=False,
    ),
}
