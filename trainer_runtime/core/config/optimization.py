"""How it is trained: batch, optimizer, schedule, evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.config.phases import Ramp
from trainer_runtime.core.decoding import Fields


@dataclass(frozen=True, slots=True)
class BatchConfig:
    """`micro_batch` is sequences per rank; `tokens` of one optimizer step over all ranks."""

    tokens: int
    micro_batch: int
    accumulation: int
    ramp: Ramp | None = None

    @classmethod
    def of(cls, fields: Fields) -> BatchConfig:
        return cls(
            tokens=fields.integer("tokens", 0),
            micro_batch=fields.integer("micro_batch", 1),
            accumulation=fields.integer("accumulation", 1),
            ramp=fields.part("ramp", Ramp.of),
        )


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """`grad_clip` 0: nothing is clipped."""

    lr: float
    name: str = "adamw"
    weight_decay: float = 0.1
    grad_clip: float = 1.0
    betas: tuple[float, float] = (0.9, 0.95)

    @classmethod
    def of(cls, fields: Fields) -> OptimizerConfig:
        return cls(
            lr=fields.number("lr", 0.0),
            name=fields.text("name", "adamw"),
            weight_decay=fields.number("weight_decay", 0.1),
            grad_clip=fields.number("grad_clip", 1.0),
            betas=_betas(fields),
        )


def _betas(fields: Fields) -> tuple[float, float]:
    given = fields.values.get("betas")
    if given is None:
        return (0.9, 0.95)
    if isinstance(given, (list, tuple)) and len(given) == 2:
        both = Fields(dict(zip("01", given, strict=True)), fields.place, f"{fields.path}.betas")
        return (both.number("0"), both.number("1"))
    raise fields.error("betas", "is not two numbers")


@dataclass(frozen=True, slots=True)
class ScheduleConfig:
    """`steps`: over how many it is laid; None: over all."""

    kind: str = "cosine"
    warmup_steps: int = 0
    min_lr_ratio: float = 0.1
    steps: int | None = None

    @classmethod
    def of(cls, fields: Fields) -> ScheduleConfig:
        return cls(
            kind=fields.text("kind", "cosine"),
            warmup_steps=fields.integer("warmup_steps", 0),
            min_lr_ratio=fields.number("min_lr_ratio", 0.1),
            steps=fields.find_integer("steps"),
        )

    def length(self, all_steps: int) -> int:
        """Over how many steps of a training of `all_steps` it is laid."""
        return all_steps if self.steps is None else self.steps


@dataclass(frozen=True, slots=True)
class SamplesConfig:
    """Texts that the trainer generates from `prompts` after every `every` steps and the last one.

    `chat`: a prompt is a user's message, in the chat template of the model.
    """

    prompts: tuple[str, ...]
    every: int
    max_tokens: int = 64
    temperature: float = 0.8
    chat: bool = False

    @classmethod
    def of(cls, fields: Fields) -> SamplesConfig:
        return cls(
            prompts=fields.texts("prompts"),
            every=fields.integer("every"),
            max_tokens=fields.integer("max_tokens", 64),
            temperature=fields.number("temperature", 0.8),
            chat=fields.flag("chat", False),
        )

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

    @classmethod
    def of(cls, fields: Fields, micro_batch: int) -> EvaluationConfig:
        return cls(
            fields.find_integer("every_steps"),
            fields.integer("batches", 8),
            fields.integer("batch_size", micro_batch),
            fields.part("samples", SamplesConfig.of),
        )

    @property
    def sequences(self) -> int:
        """How many sequences or rows of each source are evaluated at most."""
        return self.batches * self.batch_size


@dataclass(frozen=True, slots=True)
class DerivedConfig:
    """What follows from the other values.

    `flops_per_token` counts forward and backward; `peak_flops` per second, None: find out.
    """

    parameters: int | None = None
    flops_per_token: float | None = None
    sequences_per_step: int | None = None
    peak_flops: float | None = None

    @classmethod
    def of(cls, fields: Fields) -> DerivedConfig:
        return cls(
            parameters=fields.find_integer("parameters"),
            flops_per_token=fields.find_number("flops_per_token"),
            sequences_per_step=fields.find_integer("sequences_per_step"),
            peak_flops=fields.find_number("peak_flops"),
        )
