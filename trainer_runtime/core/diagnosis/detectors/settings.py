"""The detectors' settings: what a resolved configuration says about a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer_runtime.core.config import ConfigDocument, RunConfig
from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.config.lr_schedule import RANGE_TEST
from trainer_runtime.core.decoding import number
from trainer_runtime.core.protocol.duration import parse_duration


@dataclass(frozen=True, slots=True)
class Settings:
    """Every field may be unknown, as for a training that Trainmaster did not start.

    `config` is the resolved configuration that patches are made for; empty: no patches.
    `checkpoint_every_steps` and `checkpoint_every_s` exclude each other; `keeps_checkpoints` is the
    number kept before the first is pruned. `host_memory_gib` is the memory of the machine or its
    cgroup, `gpu_memory_gib` that of one GPU. `skips` are (step, sequences): data skipped after that
    step.
    """

    steps: int | None = None
    eval_every_steps: int | None = None
    checkpoint_every_steps: int | None = None
    checkpoint_every_s: float | None = None
    precision: str | None = None
    sequences_per_step: int | None = None
    peak_flops: float | None = None
    keeps_checkpoints: int | None = None
    warmup_steps: int | None = None
    host_memory_gib: float | None = None
    gpu_memory_gib: float | None = None
    skips: tuple[tuple[int, int], ...] = ()
    config: ConfigDocument = field(default_factory=dict)

    @property
    def is_range_test(self) -> bool:
        """Whether the learning rate rises until the loss diverges."""
        return _section(self.config, "schedule").get("kind") == RANGE_TEST

    @classmethod
    def from_config(
        cls,
        config: ConfigDocument,
        *,
        host_memory_gib: float | None = None,
        gpu_memory_gib: float | None = None,
    ) -> Settings:
        """Read a resolved configuration; missing or malformed values are unknown."""
        every = _section(config, "checkpoint").get("every")
        derived = _section(config, "derived")
        return cls(
            steps=_count(config.get("steps")),
            eval_every_steps=_count(_section(config, "eval").get("every_steps")),
            checkpoint_every_steps=_count(every),
            checkpoint_every_s=_seconds(every),
            precision=config.get("precision"),
            sequences_per_step=_count(derived.get("sequences_per_step")),
            warmup_steps=_count(_section(config, "schedule").get("warmup_steps")),
            keeps_checkpoints=_kept(_section(config, "checkpoint")),
            peak_flops=number(derived.get("peak_flops")),
            host_memory_gib=host_memory_gib,
            gpu_memory_gib=gpu_memory_gib,
            skips=_skips(_section(config, "data").get("skip")),
            config=config,
        )

    def sequences_before(self, steps: int) -> int:
        """The sequences of the first steps, where `sequences_per_step` is known."""
        batch = _section(self.config, "batch")
        if self.config.get("phases") or batch.get("ramp"):
            return Curriculum.of(RunConfig.parse(self.config)).sequences_before(steps)
        return steps * (self.sequences_per_step or 0)


def _section(config: ConfigDocument, name: str) -> Mapping[str, object]:
    section = config.get(name)
    return section if isinstance(section, Mapping) else {}


def _count(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None


def _kept(checkpoint: Mapping[str, object]) -> int | None:
    latest = _count(checkpoint.get("keep_latest"))
    return None if latest is None else latest + (_count(checkpoint.get("keep_best")) or 0)


def _skips(given: Any) -> tuple[tuple[int, int], ...]:
    try:
        return tuple((int(skip["at_step"]), int(skip["sequences"])) for skip in given or [])
    except (KeyError, TypeError, ValueError):
        return ()


def _seconds(value: object) -> float | None:
    try:
        return parse_duration(value) if isinstance(value, str) else None
    except ValueError:
        return None
