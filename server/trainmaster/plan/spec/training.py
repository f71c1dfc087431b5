"""The sections of the spec on batch, optimizer, schedule and validation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import Le, MaxLen, MinLen

from trainer_runtime.core.answers.sampled import MOST_PROMPTS
from trainmaster.plan.spec.annotations import (
    Auto,
    Below1,
    Count,
    CountOrZero,
    NotNegative,
    Positive,
    Prompt,
    Section,
    Share,
    setting,
)
from trainmaster.plan.spec.places import lands, not_built, nowhere, only

_KINDS = ("cosine", "linear", "constant", "inverse_sqrt", "wsd")
_BY_THE_RUN = "; the run sets the exact rates"
# Of a text that a training waits for.
MOST_TOKENS = 512


class BatchSpec(Section):
    """The batch of an optimizer step."""

    tokens: Count = setting(
        8192,
        "Tokens per optimizer step, over all accumulation and ranks. What doesn't divide is "
        "rounded down. The default suits models of a few million parameters.",
        changes="resume",
        unit="tokens",
        lands=lands(
            nanogpt="micro_batch * seq_len * accumulation",
            litgpt="train.global_batch_size, in sequences",
            hf="TrainingArguments.gradient_accumulation_steps",
        ),
    )
    micro_batch: Count | Auto = setting(
        "auto",
        "Sequences per rank and forward pass. auto takes the largest that fits into memory.",
        changes="box",
        unit="sequences",
        lands=lands(
            nanogpt="rows of a forward pass",
            litgpt="train.micro_batch_size",
            hf="TrainingArguments.per_device_train_batch_size",
        ),
    )
    ramp: dict[str, Any] | None = setting(
        None, "Start with smaller batches and grow them.", changes="resume", lands=not_built()
    )


class OptimizerSpec(Section):
    """The optimizer."""

    name: Literal["adamw", "adam", "sgd", "lion", "adafactor", "muon", "sophia", "lamb"] = setting(
        "adamw",
        "AdamW is what the published learning rates are for.",
        changes="never",
        lands=lands(
            nanogpt=only("torch.optim.AdamW", "adamw"),
            litgpt=only("optimizer.class_path", "adamw"),
            hf=only("TrainingArguments.optim", "adamw", "adafactor", "sgd"),
        ),
    )
    lr: Positive | Auto = setting(
        "auto",
        "The highest learning rate of the schedule. auto takes it from the model's size, or from "
        "the method where a model is tuned; sgd takes a number.",
        changes="box",
        lands=lands(
            nanogpt="AdamW lr, through the schedule",
            litgpt="optimizer.init_args.lr",
            hf="TrainingArguments.learning_rate",
        ),
    )
    weight_decay: NotNegative = setting(
        0.1,
        "Decay of matrices (not of norms), as GPT-3 used it.",
        changes="resume",
        lands=lands(
            nanogpt="AdamW weight_decay of the matrices",
            litgpt="optimizer.init_args.weight_decay",
            hf="TrainingArguments.weight_decay",
        ),
    )
    grad_clip: NotNegative = setting(
        1.0,
        "Largest norm of the gradient; 0 does not clip. 1.0 as GPT-3 used it.",
        changes="box",
        lands=lands(
            nanogpt="clip_grad_norm_",
            litgpt="train.max_norm",
            hf="TrainingArguments.max_grad_norm",
        ),
    )
    betas: list[Below1] = setting(
        [0.9, 0.95],
        "AdamW's two decay rates. 0.95 forgets quicker than PyTorch's 0.999, which steadies "
        "training on large batches.",
        changes="resume",
        lands=lands(
            nanogpt="AdamW betas",
            litgpt="optimizer.init_args.betas",
            hf="TrainingArguments.adam_beta1, TrainingArguments.adam_beta2",
        ),
    )


class ScheduleSpec(Section):
    """The learning-rate schedule."""

    kind: Literal["cosine", "linear", "constant", "inverse_sqrt", "wsd", "polynomial"] = setting(
        "cosine",
        "Shape after the warm-up; `wsd` stays level and decays over the last fifth. Cosine is "
        "what most published recipes use.",
        changes="resume",
        lands=lands(
            nanogpt=only("schedule", *_KINDS),
            litgpt=only("the wrapper's schedule", *_KINDS),
            hf=only(f"TrainingArguments.lr_scheduler_type{_BY_THE_RUN}", *_KINDS),
        ),
    )
    warmup_steps: CountOrZero | Auto = setting(
        "auto",
        "Steps over which the rate rises from zero. auto takes 2 % of the steps, at most 2000.",
        changes="resume",
        unit="steps",
        lands=lands(
            nanogpt="schedule",
            litgpt="train.lr_warmup_steps",
            hf=f"TrainingArguments.warmup_steps{_BY_THE_RUN}",
        ),
    )
    min_lr_ratio: Share = setting(
        0.1,
        "Where the rate ends, as a share of its peak. A tenth, as in GPT-3.",
        changes="resume",
        unit="share",
        lands=lands(
            nanogpt="schedule",
            litgpt="train.min_lr",
            hf=f"TrainingArguments.lr_scheduler_kwargs{_BY_THE_RUN}",
        ),
    )
    steps: Count | None = setting(
        None,
        "Over how many steps the schedule is laid; behind them the rate stays. null: over all. A "
        "resume with another number of steps keeps the schedule's, unless it names this field.",
        changes="resume",
        unit="steps",
        lands=lands(
            nanogpt="schedule",
            litgpt="the wrapper's schedule",
            hf="the run sets the exact rates",
        ),
    )


_SAMPLED = lands(nanogpt="the loop", litgpt="the loop", hf="the run's callback")


class SamplesSpec(Section):
    """Texts that the model generates while it is trained."""

    prompts: Annotated[list[Prompt], MinLen(1), MaxLen(MOST_PROMPTS)] = setting(
        ...,
        "What the texts continue, one each. At most 8: the training waits for them.",
        changes="resume",
        lands=_SAMPLED,
    )
    every: Count | None = setting(
        None,
        "Steps between them, and once at the end. Null takes `eval.every_steps`.",
        changes="resume",
        unit="steps",
        lands=_SAMPLED,
    )
    max_tokens: Annotated[Count, Le(MOST_TOKENS)] = setting(
        64, "Length of a text, at most 512.", changes="resume", unit="tokens", lands=_SAMPLED
    )
    temperature: NotNegative = setting(
        0.8,
        "Divides the logits; 0 takes the likeliest token. Drawn from `seed`, and from no random "
        "number of the training.",
        changes="resume",
        lands=_SAMPLED,
    )
    chat: bool = setting(
        False,
        "A prompt is a user's message, in the chat template of the tokenizer.",
        changes="resume",
        lands=lands(
            nanogpt=nowhere("its tokenizers have no chat template"),
            litgpt=nowhere("its prompt styles are not applied to samples"),
            hf="apply_chat_template",
        ),
    )


class EvalSpec(Section):
    """Validation on the held-out split."""

    every_steps: Count = setting(
        50,
        "Steps between validations, and one at the end. 50 shows a curve also in short runs.",
        changes="resume",
        unit="steps",
        lands=lands(nanogpt="the loop", litgpt="eval.interval", hf="TrainingArguments.eval_steps"),
    )
    batches: Count = setting(
        8,
        "Micro-batches of the plan, per source. What they hold is always the same, also when the "
        "training continues in smaller ones, so that values compare.",
        changes="resume",
        unit="micro-batches",
        lands=lands(nanogpt="the loop", litgpt="eval.max_iters", hf="eval_dataset, cut to so many"),
    )
    samples: SamplesSpec | None = setting(
        None,
        "Generate texts now and then, recorded as events `eval.samples`. Null generates none.",
        changes="resume",
        lands=_SAMPLED,
    )
