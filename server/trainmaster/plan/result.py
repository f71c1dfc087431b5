"""The result of planning: the resolved config, decisions with reasons, estimates."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Result(BaseModel):
    """Immutable part of an answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Decision(Result):
    """A value that the spec left open, or that was adapted; `source`: the origin of the rule."""

    field: str
    value: Any
    reason: str
    source: str | None = None


class Estimates(Result):
    """Estimates of the training; None where none is possible.

    `trained_parameters`: of an adapter. `memory_source`: `trace`, where the memory is not the
    formulas'. `ranges` holds low and high of uncertain ones. `finish_at` is UTC, ISO 8601; for
    training in `sessions` it follows the quota's calendar.
    """

    parameters: int | None = None
    trained_parameters: int | None = None
    memory_gib: float | None = None
    memory_source: str | None = None
    disk_gib: float | None = None
    tokens_per_s: float | None = None
    mfu: float | None = None
    hours: float | None = None
    usd: float | None = None
    finish_at: str | None = None
    sessions: int | None = None
    ranges: dict[str, tuple[float, float]] = Field(default_factory=dict)


class GpuAdvice(Result):
    """Recommended GPUs, and the device of this plan: `cpu` or a GPU's name."""

    recommended: str
    reason: str
    planned: str


class Plan(Result):
    """A spec with every `auto` decided.

    `config` is the resolved config without `run_id`. `launchable` is false where the plan is for a
    GPU that the host does not have. `missing`: what a launch needs and the plan did without, in
    sentences. `requirements` are the packages that the trainer needs,
    `attached` the texts of further files of the run's folder, by name. `curriculum`: the phases by
    columns.
    """

    config: dict[str, Any]
    decisions: tuple[Decision, ...]
    estimates: Estimates
    gpu: GpuAdvice
    warnings: tuple[str, ...] = ()
    launchable: bool = True
    missing: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    attached: dict[str, str] = Field(default_factory=dict)
    curriculum: dict[str, Any] | None = None


class Ledger:
    """Collects decisions and warnings while a plan is made."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self.warnings: list[str] = []

    def decide(self, field: str, value: Any, reason: str, source: str | None = None) -> None:
        """Record a decision; a later one on the same field replaces it."""
        self.decisions = [decision for decision in self.decisions if decision.field != field]
        self.decisions.append(Decision(field=field, value=value, reason=reason, source=source))

    def forget(self, field: str) -> None:
        """Take a decision back that does not matter after all."""
        self.decisions = [decision for decision in self.decisions if decision.field != field]

    def warn(self, text: str) -> None:
        self.warnings.append(text)
