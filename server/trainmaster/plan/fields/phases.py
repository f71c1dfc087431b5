"""The section of the spec on the stages of a curriculum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import create_model

from trainmaster.plan.fields.annotations import (
    Count,
    CountOrZero,
    Name,
    NotNegative,
    Positive,
    Section,
    Share,
    Text,
    Tokens,
    Width,
    setting,
)

# A class can't declare a field named `from`, which is a keyword.
_RATE: dict[str, Any] = {
    "kind": (
        Literal["linear", "cosine", "wsd", "polynomial"],
        setting("linear", "Shape between the two rates.", changes="resume"),
    ),
    "from": (
        NotNegative | None,
        setting(
            None,
            "The rate it begins with. Null begins where the phase before has ended.",
            changes="resume",
        ),
    ),
    "to": (
        NotNegative,
        setting(..., "The rate it ends with; 0 anneals to zero.", changes="resume"),
    ),
    "warmup_steps": (
        CountOrZero,
        setting(
            0,
            "Steps over which the rate first goes from where the phase before ended to `from`.",
            changes="resume",
            unit="steps",
        ),
    ),
}
_RAMP: dict[str, Any] = {
    "from": (Share, setting(0.25, "The share of the batch to begin with.", changes="resume")),
    "over": (
        Share,
        setting(0.05, "The share of the run's steps over which it grows.", changes="resume"),
    ),
}
if TYPE_CHECKING:
    RateSpec = Section
    RampSpec = Section
else:
    RateSpec = create_model("RateSpec", __base__=Section, __doc__="A phase's own rate.", **_RATE)
    RampSpec = create_model("RampSpec", __base__=Section, __doc__="A growing batch.", **_RAMP)


class SuccessSpec(Section):
    """What a phase must have reached when it ends."""

    metric: Text = setting(
        "val_loss",
        "The metric, of the evaluation at the phase's end: such as val_loss/NAME of one source.",
        changes="resume",
    )
    below: float | None = setting(None, "It must be below this.", changes="resume")
    not_worse_than_start_pct: NotNegative | None = setting(
        None,
        "It may be at most this much above its value at the phase's start.",
        changes="resume",
        unit="%",
    )


class PhaseSpec(Section):
    """One stage of a curriculum."""

    name: Name = setting(..., "What status and metrics call it.", changes="never")
    steps: Count | None = setting(
        None, "Its length; either this or tokens.", changes="resume", unit="steps"
    )
    tokens: Tokens | None = setting(
        None, "Its length; becomes steps of its batch.", changes="resume", unit="tokens"
    )
    sources: dict[str, NotNegative] | None = setting(
        None,
        "The mix: weights by source name; a source that is not named is not read. Null keeps the "
        "sources' own.",
        changes="resume",
        unit="relative share",
    )
    lr: Positive | RateSpec | None = setting(
        None,
        "A number holds that rate; a mapping gives the phase its own schedule. Null continues the "
        "run's.",
        changes="resume",
    )
    batch: Tokens | None = setting(
        None, "Tokens per optimizer step. Null takes batch.tokens.", changes="resume", unit="tokens"
    )
    seq_len: Width | None = setting(
        None,
        "Tokens in a sequence: data.seq_len, which the model is made for, or a divisor of it. Null "
        "takes data.seq_len.",
        changes="resume",
        unit="tokens",
    )
    success: SuccessSpec | None = setting(
        None, "What it must have reached at its end.", changes="resume"
    )
    on_miss: Literal["warn", "stop", "extend", "rollback"] = setting(
        "warn",
        "What follows if it has not: a warning; the end of the run; half as many steps again; or "
        "the phase once more from its start at half the rate. The last two at most twice, then the "
        "run stops.",
        changes="resume",
    )
