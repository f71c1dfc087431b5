"""The section of the spec on the stages of a curriculum."""

from __future__ import annotations

from typing import Literal

from trainmaster.plan.spec.annotations import (
    Auto,
    Count,
    Name,
    NotNegative,
    Positive,
    Section,
    Text,
    setting,
)
from trainmaster.plan.spec.places import not_built


class SuccessSpec(Section):
    """What a phase must have reached when it ends."""

    metric: Text = setting(
        "val_loss", "The metric that is evaluated.", changes="resume", lands=not_built()
    )
    below: float | None = setting(
        None, "It must be below this.", changes="resume", lands=not_built()
    )
    not_worse_than_start_pct: NotNegative | None = setting(
        None,
        "It may be at most this much above its value at the phase's start.",
        changes="resume",
        unit="%",
        lands=not_built(),
    )


class PhaseSpec(Section):
    """One stage of a curriculum."""

    name: Name = setting(
        ..., "What status and metrics call it.", changes="never", lands=not_built()
    )
    steps: Count | None = setting(
        None, "Its length.", changes="resume", unit="steps", lands=not_built()
    )
    tokens: Count | None = setting(
        None, "Its length.", changes="resume", unit="tokens", lands=not_built()
    )
    sources: dict[str, Positive] | None = setting(
        None,
        "The mix: weights by source name. Null keeps the sources' own.",
        changes="resume",
        unit="relative share",
        lands=not_built(),
    )
    lr: Positive | Auto | None = setting(
        None,
        "Its highest learning rate. Null continues the schedule.",
        changes="resume",
        lands=not_built(),
    )
    success: SuccessSpec | None = setting(
        None, "What it must have reached at its end.", changes="resume", lands=not_built()
    )
    on_miss: Literal["warn", "stop", "extend", "rollback"] = setting(
        "warn", "What happens if it has not.", changes="resume", lands=not_built()
    )
