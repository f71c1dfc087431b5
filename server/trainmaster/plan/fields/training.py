"""The sections of the spec on batch, optimizer, schedule and validation."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Le, MaxLen, MinLen

from trainer_runtime.core.answers.sampled import MOST_PROMPTS
from trainmaster.plan.fields.annotations import (
    Auto,
    Below1,
    Count,
    CountOrZero,
    NotNegative,
    Positive,
    Prompt,
    Section,
    Share,
    Text,
    Tokens,
    setting,
)
from trainmaster.plan.fields.phases import RampSpec

# Of a text that a training waits for.
MOST_TOKENS = 512


class BatchSpec(Section):
    """The batch of an optimizer step."""

    tokens: Tokens = setting(
        8192,
        "Tokens per optimizer step, over all accumulation and ranks. What doesn't divide is "
        "rounded down. The default suits models of a few million parameters; left out, it has room "
        "for a micro-batch.",
        changes="resume",
        unit="tokens",
    )
    micro_batch: Count | Auto = setting(
        "auto",
        "Sequences per rank and forward pass. auto takes the largest that fits into memory.",
        changes="box",
        unit="sequences",
    )
    ramp: Auto | RampSpec | None = setting(
        None,
        "Start with smaller batches and grow them in stages. auto begins with a quarter and grows "
        "over the first 5 % of the steps.",
        changes="resume",
    )


class GroupSpec(Section):
    """Parameters that are trained otherwise than the others."""

    match: Text = setting(
        ...,
        "Their names, as a glob: `*.bias`, `blocks.0.*`. The first group that matches a name "
        "counts; one that matches none is refused when the training starts, with the names.",
        changes="resume",
    )
    lr_scale: NotNegative = setting(
        1.0, "Their learning rate, as a multiple of the others'.", changes="resume"
    )
    weight_decay: NotNegative | None = setting(
        None, "Their weight decay. Null: as the others.", changes="resume"
    )


class OptimizerSpec(Section):
    """The optimizer."""

    name: (
        Auto
        | Literal[
            "adamw",
            "adam",
            "sgd",
            "lion",
            "adafactor",
            "muon",
            "sophia",
            "lamb",
            "sm3",
            "schedule_free",
            "adamw8bit",
        ]
    ) = setting(
        "auto",
        "auto is muon for models of style modern, which a new model of nanogpt is where the spec "
        "names no style either, and else AdamW, which the published learning rates are for. `muon` "
        "takes the blocks' matrices, and AdamW all others; `schedule_free` is AdamW without a "
        "schedule.",
        changes="never",
    )
    lr: Positive | Auto = setting(
        "auto",
        "The highest learning rate of the schedule. auto takes it from the model's size, or from "
        "the method where a model is tuned, times what the optimizer takes of AdamW's; sgd and "
        "sm3 take a number.",
        changes="box",
    )
    weight_decay: NotNegative = setting(
        0.1,
        "Decay of matrices (not of norms), as GPT-3 used it.",
        changes="resume",
    )
    decay: Literal["decoupled", "l2"] | Auto = setting(
        "auto",
        "`decoupled` shrinks the weights by themselves, `l2` adds to their gradients. auto: l2 for "
        "adam and sgd, decoupled for all others.",
        changes="resume",
    )
    grad_clip: NotNegative = setting(
        1.0,
        "Largest norm of the gradient; 0 does not clip. 1.0 as GPT-3 used it.",
        changes="box",
    )
    clip: Literal["norm", "value", "agc"] = setting(
        "norm",
        "What `grad_clip` limits: the norm of the whole gradient, the size of each element, or by "
        "adaptive clipping each row's norm as a share of its weights' (0.01 in Brock et al. 2021; "
        "the output layer is left).",
        changes="resume",
    )
    betas: list[Below1] | Auto = setting(
        "auto",
        "The two decay rates of its moments. auto takes the optimizer's own; AdamW's are 0.9 and "
        "0.95, which forgets quicker than PyTorch's 0.999 and steadies training on large batches. "
        "With n-gram embeddings auto is 0.9 and 0.99.",
        changes="resume",
    )
    momentum: Below1 | Auto = setting(
        "auto",
        "Momentum of sgd and sm3 (auto: 0.9), and of muon's matrices (0.95).",
        changes="resume",
    )
    eps: Positive | Auto = setting(
        "auto",
        "What keeps the update's divisor from zero. auto takes the optimizer's own; AdamW's is "
        "1e-8.",
        changes="resume",
    )
    z_loss: NotNegative = setting(
        0.0,
        "Weight of the z-loss, the square of the logarithm that normalises the logits, which keeps "
        "them from drifting; 1e-4 in PaLM. `loss` remains the cross-entropy alone.",
        changes="resume",
    )
    label_smoothing: Below1 = setting(
        0.0,
        "Share of each target that is spread over the whole vocabulary. `loss` remains the "
        "cross-entropy alone.",
        changes="resume",
        unit="share",
    )
    focal_gamma: NotNegative = setting(
        0.0,
        "Weighs each token's loss by its doubt, 1 - p, to this power: what is learnt already "
        "counts less; 2 in Lin et al. 2017. `loss` remains the cross-entropy alone.",
        changes="resume",
    )
    groups: list[GroupSpec] = setting(
        [], "Parameters with a rate or a decay of their own, by name.", changes="resume"
    )

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """The fields that make the loss more than the cross-entropy."""
        terms = ("z_loss", "label_smoothing", "focal_gamma")
        return tuple(name for name in terms if getattr(self, name))


class ScheduleSpec(Section):
    """The learning-rate schedule."""

    kind: Literal[
        "cosine",
        "linear",
        "constant",
        "inverse_sqrt",
        "wsd",
        "polynomial",
        "cosine_restarts",
        "range_test",
    ] = setting(
        "cosine",
        "Shape after the warm-up; `wsd` stays level and decays over the last fifth. Cosine is "
        "what most published recipes use. `range_test` is what `lr-test` takes: no model is kept.",
        changes="resume",
    )
    power: Positive = setting(
        1.0,
        "Of `polynomial`: the power of what is left of the way; 1 is linear, 2 falls fast first.",
        changes="resume",
    )
    cycles: Count = setting(
        1, "Of `cosine_restarts`: how often it falls.", changes="resume", unit="cycles"
    )
    warmup: Literal["linear", "exponential"] = setting(
        "linear",
        "How the rate rises; `exponential` steeply at first.",
        changes="resume",
    )
    warmup_steps: CountOrZero | Auto = setting(
        "auto",
        "Steps over which the rate rises from zero. auto takes 2 % of the steps, at most 2000.",
        changes="resume",
        unit="steps",
    )
    min_lr_ratio: Share = setting(
        0.1,
        "Where the rate ends, as a share of its peak. A tenth, as in GPT-3.",
        changes="resume",
        unit="share",
    )
    steps: Count | None = setting(
        None,
        "Over how many steps the schedule is laid; behind them the rate stays. null: over all. A "
        "resume with another number of steps keeps the schedule's, unless it names this field.",
        changes="resume",
        unit="steps",
    )


class SamplesSpec(Section):
    """Texts that the model generates while it is trained."""

    prompts: Annotated[list[Prompt], MinLen(1), MaxLen(MOST_PROMPTS)] = setting(
        ...,
        "What the texts continue, one each. At most 8: the training waits for them.",
        changes="resume",
    )
    every: Count | None = setting(
        None,
        "Steps between them, and once at the end. Null takes `eval.every_steps`.",
        changes="resume",
        unit="steps",
    )
    max_tokens: Annotated[Count, Le(MOST_TOKENS)] = setting(
        64,
        "Length of a text, at most 512.",
        changes="resume",
        unit="tokens",
    )
    temperature: NotNegative = setting(
        0.8,
        "Divides the logits; 0 takes the likeliest token. Drawn from `seed`, and from no random "
        "number of the training.",
        changes="resume",
    )
    chat: bool = setting(
        False,
        "A prompt is a user's message, in the chat template of the tokenizer.",
        changes="resume",
    )


class EarlyStoppingSpec(Section):
    """When a training ends before its last step."""

    patience: Count = setting(
        ...,
        "After how many evaluations in a row without a better value it ends, completed.",
        changes="resume",
        unit="evaluations",
    )
    metric: Text = setting(
        "auto",
        "The value of evaluations that has to improve, one of those that `checkpoint.metric` "
        "takes; auto takes that one's.",
        changes="resume",
    )
    min_delta: NotNegative = setting(
        0.0, "By how much it has to be better than the best so far.", changes="resume"
    )


class EvalSpec(Section):
    """Validation on the held-out split."""

    every_steps: Count = setting(
        50,
        "Steps between validations, and one at the end. 50 shows a curve also in short runs.",
        changes="resume",
        unit="steps",
    )
    batches: Count = setting(
        8,
        "Micro-batches of the plan, per source. What they hold is always the same, also when the "
        "training continues in smaller ones, so that values compare.",
        changes="resume",
        unit="micro-batches",
    )
    samples: SamplesSpec | None = setting(
        None,
        "Generate texts now and then, recorded as events `eval.samples`. Null generates none.",
        changes="resume",
    )
    early_stopping: EarlyStoppingSpec | None = setting(
        None,
        "End the training once its evaluations no longer improve; each best one is saved. Null "
        "goes to the last step.",
        changes="resume",
    )
