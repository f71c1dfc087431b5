"""The section of the spec on the stages of a curriculum."""

from __future__ import annotations

from typing import Literal

from trainmaster.plan.fields.annotations import (
    Auto,
    Count,
    Name,
    NotNegative,
    Positive,
    Section,
    Text,
    setting,
)
from trainmaster.plan.fields.place import NOT_BUILT_YET


class SuccessSpec(Section):
    """What a phase must have reached when it ends."""

    metric: Text = setting(
        "val_loss", "The metric that is evaluated.", changes="resume", acts=NOT_BUILT_YET
    )
    below: float | None = setting(
        None, "It must be below this.", changes="resume", acts=NOT_BUILT_YET
    )
    not_worse_than_start_pct: NotNegative | None = setting(
        None,
        "It may be at most this much above its value at the phase's start.",
        changes="resume",
        unit="%",
        acts=NOT_BUILT_YET,
    )


class PhaseSpec(Section):
    """One stage of a curriculum."""

    name: Name = setting(
        ..., "What status and metrics call it.", changes="never", acts=NOT_BUILT_YET
    )
    steps: Count | None = setting(
        None, "Its length.", changes="resume", unit="steps", acts=NOT_BUILT_YET
    )
    tokens: Count | None = setting(
        None, "Its length.", changes="resume", unit="tokens", acts=NOT_BUILT_YET
    )
    sources: dict[str, Positive] | None = setting(
        None,
        "The mix: weights by source name. Null keeps the sources' own.",
        changes="resume",
        unit="relative share",
        acts=NOT_BUILT_YET,
    )
    lr: Positive | Auto | None = setting(
        None,
        "Its highest learning rate. Null continues the schedule.",
        changes="resume",
        acts=NOT_BUILT_YET,
    )
    success: SuccessSpec | None = setting(
        None, "What it must have reached at its end.", changes="resume", acts=NOT_BUILT_YET
    )
    on_miss: Literal["warn", "stop", "extend", "rollback"] = setting(
        "warn", "What happens if it has not.", changes="resume", acts=NOT_BUILT_YET
    )
