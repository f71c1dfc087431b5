"""How it is trained: batch, optimizer, schedule, evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainer_runtime.core.config.early_stopping import EarlyStoppingConfig
from trainer_runtime.core.config.lr_schedule import RANGE_TEST, lr_factor
from trainer_runtime.core.config.phases import Ramp
from trainer_runtime.core.decoding import Fields, JsonRecord


@dataclass(frozen=True, slots=True)
class BatchConfig(JsonRecord):
    """`micro_batch` is sequences per rank; `tokens` of one optimizer step over all ranks."""

    tokens: int = 0
    micro_batch: int = 1
    accumulation: int = 1
    ramp: Ramp | None = None


@dataclass(frozen=True, slots=True)
class GroupConfig(JsonRecord):
    """Parameters whose names `match`, a glob; `weight_decay` None: as the others."""

    match: str
    lr_scale: float = 1.0
    weight_decay: float | None = None


def _betas(fields: Fields) -> tuple[float, float]:
    values = fields.values.get("betas")
    if values is None:
        return (0.9, 0.95)
    if isinstance(values, (list, tuple)) and len(values) == 2:
        both = Fields(dict(zip("01", values, strict=True)), fields.place, f"{fields.path}.betas")
        return (both.number("0"), both.number("1"))
    raise fields.error("betas", "is not two numbers")


# No gradient is as long: for frameworks that compute the norm only of gradients that they clip.
NO_CLIPPING = 1e30


@dataclass(frozen=True, slots=True)
class OptimizerConfig(JsonRecord):
    """`grad_clip` 0: nothing is clipped. `eps`, `momentum` and `decay` None: the usual ones of the
    optimizer. `clip`: what `grad_clip` is compared with (norm, value, agc). `z_loss`,
    `label_smoothing` and `focal_gamma`: terms of the loss, 0: none."""

    lr: float = 0.0
    name: str = "adamw"
    weight_decay: float = 0.1
    grad_clip: float = 1.0
    betas: tuple[float, float] = field(default=(0.9, 0.95), metadata={"read": _betas})
    momentum: float | None = None
    eps: float | None = None
    decay: str | None = None
    clip: str = "norm"
    z_loss: float = 0.0
    label_smoothing: float = 0.0
    focal_gamma: float = 0.0
    groups: tuple[GroupConfig, ...] = ()

    @property
    def max_norm(self) -> float:
        """The largest norm of the whole gradient; 0: any."""
        return self.grad_clip if self.clip == "norm" else 0.0


@dataclass(frozen=True, slots=True)
class ScheduleConfig(JsonRecord):
    """`steps`: over how many it is laid; None: over all. `power` is of `polynomial`, `cycles` of
    `cosine_restarts`."""

    kind: str = "cosine"
    warmup_steps: int = 0
    min_lr_ratio: float = 0.1
    steps: int | None = None
    warmup: str = "linear"
    power: float = 1.0
    cycles: int = 1

    @property
    def is_range_test(self) -> bool:
        """Whether the loss is to diverge, to find a rate, and no model is kept."""
        return self.kind == RANGE_TEST

    def length(self, all_steps: int) -> int:
        """Over how many steps of a training of `all_steps` it is laid."""
        return all_steps if self.steps is None else self.steps

    def factor(self, step: int, all_steps: int) -> float:
        """The rate of a step (from 1) of a training of `all_steps`, as a share of its peak."""
        return lr_factor(
            self.kind,
            min(step, all_steps),
            self.length(all_steps),
            self.warmup_steps,
            self.min_lr_ratio,
            warmup=self.warmup,
            power=self.power,
            cycles=self.cycles,
        )


@dataclass(frozen=True, slots=True)
class SamplesConfig(JsonRecord):
    """Texts that the trainer generates from `prompts` after every `every` steps and the last one.

    `chat`: a prompt is a user's message, in the chat template of the model.
    """

    prompts: tuple[str, ...]
    every: int
    max_tokens: int = 64
    temperature: float = 0.8
    chat: bool = False

    def is_due(self, step: int, steps: int) -> bool:
        """Whether texts are generated after `step` of `steps`."""
        return step == steps or (self.every > 0 and step % self.every == 0)


@dataclass(frozen=True, slots=True)
class EvaluationConfig:
    """`every_steps` None or 0: only the last step is evaluated; `batches` 0: never.

    `batch_size`: the micro-batch of the plan. What is evaluated stays the same when the training
    continues in smaller ones.
    """

    every_steps: int | None = None
    batches: int = 8
    batch_size: int = 1
    samples: SamplesConfig | None = None
    early_stopping: EarlyStoppingConfig | None = None

    @classmethod
    def of(cls, fields: Fields, micro_batch: int) -> EvaluationConfig:
        return cls(
            fields.find_integer("every_steps"),
            fields.integer("batches", 8),
            fields.integer("batch_size", micro_batch),
            fields.part("samples", SamplesConfig.of),
            fields.part("early_stopping", EarlyStoppingConfig.of),
        )

    @property
    def sequences(self) -> int:
        """How many sequences or rows of each source are evaluated at most."""
        return self.batches * self.batch_size


@dataclass(frozen=True, slots=True)
class DerivedConfig(JsonRecord):
    """What follows from the other values.

    `flops_per_token` counts forward and backward; `peak_flops` per second, None: find out.
    """

    parameters: int | None = None
    flops_per_token: float | None = None
    sequences_per_step: int | None = None
    peak_flops: float | None = None
