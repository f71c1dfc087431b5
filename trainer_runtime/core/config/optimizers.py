"""The optimizers: what planning estimates by and what the host builds, one record each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Decay = Literal["decoupled", "l2"]
PYTORCH_OPTIMIZER, BITSANDBYTES = "pytorch-optimizer", "bitsandbytes"
_MODULES = {
    "torch": "torch.optim",
    PYTORCH_OPTIMIZER: "pytorch_optimizer",
    BITSANDBYTES: "bitsandbytes.optim",
}
# Strategies that part parameters among ranks: as matrices, or as flat pieces.
_MATRICES, _FLAT = ("fsdp",), ("zero1", "zero2", "zero3", "zero3_offload")
_BY_MATRIX = "it updates whole matrices, of which a rank has only a part there"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerRecord:
    """What is particular to an optimizer.

    `package`: the distribution that has `class_name`; `since`: from this PyTorch on.
    `state_bytes`: of its state for each fp32 parameter; `matrix_bytes`: for those of the blocks'
    matrices, where these differ. `checkpoint_bytes`: what a checkpoint holds of it, where more.
    `betas`, `momentum`, `eps`: its usual ones; None where it has no such value.
    `decay`: what the class does with `weight_decay`; None: nothing, ours does it before the step.
    `rate`: its usual learning rate as a multiple of AdamW's, None where nobody has published one;
    `rate_source`: who says so.
    `parted`: strategies that part parameters among ranks and that it can do; `lacks`: why not the
    others. `averages`: it evaluates other weights than it trains.
    """

    class_name: str
    package: str = "torch"
    since: str = "2.3"
    state_bytes: float
    matrix_bytes: float | None = None
    checkpoint_bytes: float | None = None
    betas: tuple[float, float] | None = None
    momentum: float | None = None
    eps: float | None = None
    decay: Decay | None = "decoupled"
    rate: float | None = None
    rate_source: str = ""
    parted: tuple[str, ...] = ()
    lacks: str = _BY_MATRIX
    averages: bool = False

    @property
    def module(self) -> str:
        return _MODULES[self.package]

    @property
    def usual_decay(self) -> Decay:
        return self.decay or "decoupled"


_ADAM_BETAS = (0.9, 0.95)
OPTIMIZERS: Mapping[str, OptimizerRecord] = {
    "adamw": OptimizerRecord(
        class_name="AdamW",
        state_bytes=8,
        betas=_ADAM_BETAS,
        eps=1e-8,
        rate=1.0,
        parted=(*_MATRICES, *_FLAT),
    ),
    "adam": OptimizerRecord(
        class_name="Adam",
        state_bytes=8,
        betas=_ADAM_BETAS,
        eps=1e-8,
        decay="l2",
        rate=1.0,
        rate_source="Loshchilov & Hutter 2017 (arXiv 1711.05101), algorithm 2: AdamW's own step",
        parted=(*_MATRICES, *_FLAT),
    ),
    "sgd": OptimizerRecord(
        class_name="SGD",
        state_bytes=4,
        momentum=0.9,
        decay="l2",
        parted=(*_MATRICES, *_FLAT),
    ),
    "lion": OptimizerRecord(
        class_name="Lion",
        package=PYTORCH_OPTIMIZER,
        state_bytes=4,
        betas=(0.9, 0.99),
        rate=0.2,
        rate_source=(
            "Chen et al. 2023 (arXiv 2302.06675), section 5: 3 to 10 times less than AdamW, with a "
            "weight decay as many times higher"
        ),
        parted=_FLAT,
        lacks="not tried on parameters that FSDP parts",
    ),
    "adafactor": OptimizerRecord(
        class_name="Adafactor",
        since="2.5",
        state_bytes=0.1,
        eps=1.2e-7,
        rate=1.0,
        rate_source="Zhao et al. 2024 (arXiv 2407.07972): Adafactor does as Adam over all rates",
    ),
    "muon": OptimizerRecord(
        class_name="Muon",
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
    ),
    "lamb": OptimizerRecord(
        class_name="Lamb",
        package=PYTORCH_OPTIMIZER,
        state_bytes=8,
        betas=(0.9, 0.999),
        eps=1e-6,
        rate=3.5,
        rate_source=(
            "NVIDIA DeepLearningExamples, BERT's second phase: 4e-3 in batches of 32,768, by the "
            "square-root rule 3.5e-4 for 256, where Devlin et al. 2018 take 1e-4"
        ),
    ),
    "sm3": OptimizerRecord(
        class_name="SM3",
        package=PYTORCH_OPTIMIZER,
        state_bytes=4.1,
        momentum=0.9,
        decay=None,
    ),
    "schedule_free": OptimizerRecord(
        class_name="ScheduleFreeAdamW",
        package=PYTORCH_OPTIMIZER,
        state_bytes=8,
        checkpoint_bytes=12,
        betas=(0.9, 0.999),
        eps=1e-8,
        rate=3.0,
        rate_source=(
            "Defazio et al. 2024 (arXiv 2405.15682), in the README of their code: 1 to 10 times "
            "the rate of AdamW with a schedule"
        ),
        lacks="it evaluates other weights than it trains, which have to be there whole",
        averages=True,
    ),
    "adamw8bit": OptimizerRecord(
        class_name="AdamW8bit",
        package=BITSANDBYTES,
        state_bytes=2.04,
        betas=_ADAM_BETAS,
        eps=1e-8,
        rate=1.0,
        rate_source="Dettmers et al. 2021 (arXiv 2110.02861): 32-bit Adam's own hyperparameters",
        lacks="its state is quantized by blocks of whole parameters",
    ),
}
# Why sophia is not among them.
SOPHIA_LACKS = "its estimate of curvature takes a backward pass of its own every ten steps"
