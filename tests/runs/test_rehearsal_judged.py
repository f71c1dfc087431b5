"""What a rehearsal is judged by, where no processor of this machine shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.protocol.progress import Progress
from trainmaster.runs.rehearsal.judge import Rehearsed, judge, verdict_of

_STEPS = 40
_CONFIG: dict[str, Any] = {
    "method": "pretrain",
    "steps": _STEPS,
    "optimizer": {"lr": 0.01},
    "schedule": {"kind": "cosine", "warmup_steps": 10, "min_lr_ratio": 0.1, "steps": 4000},
    "compute": {"gpus": 1, "device": "cuda"},
}


def rehearsed(**series: Any) -> Rehearsed:
    """A healthy one on a GPU; `series`: values by step of some keys."""
    config = RunConfig.parse(_CONFIG)
    curriculum = Curriculum.of(config)
    steps = range(1, _STEPS + 1)
    values = {
        "loss": lambda step: 8 - step / 10,
        "grad_norm": lambda _: 0.8,
        "lr": curriculum.rate,
        "peak_memory_gib": lambda _: 20.0,
        "tokens_per_s": lambda _: 90_000.0,
        **series,
    }
    attempts = [Progress(1, 0, step=25), Progress(2, 20, step=_STEPS, final="final")]
    attempts[1].best = {"val_loss": (4.2, 40)}
    of_attempts = {1: range(1, 26), 2: range(21, _STEPS + 1)}
    return Rehearsed(
        config=config,
        kind="smoke",
        completed=True,
        attempts=attempts,
        values={
            key: {
                attempt: {step: value(step) for step in of} for attempt, of in of_attempts.items()
            }
            for key, value in values.items()
            if steps
        },
        estimates={"memory_gib": 21.0, "tokens_per_s": 100_000.0},
    )


def failed(of: Rehearsed) -> set[str]:
    return {check.name for check in judge(of) if check.verdict == "failed"}


def test_a_healthy_one_passes_every_check() -> None:
    checks = judge(rehearsed())
    assert {check.verdict for check in checks} == {"passed"}, checks
    assert verdict_of(checks) == "passed"


@pytest.mark.parametrize(
    ("series", "checks"),
    [
        ({"lr": lambda step: 0.01}, {"rate"}),
        ({"lr": lambda step: 0.0}, {"rate"}),
        ({"peak_memory_gib": lambda step: 60.0}, {"memory"}),
        ({"tokens_per_s": lambda step: 30_000.0}, {"throughput"}),
        ({"loss": lambda step: 8 + step % 3 / 100}, {"loss"}),
        ({"loss": lambda step: 8 - step / 10 if step < 30 else float("nan")}, {"loss"}),
        ({"grad_norm": lambda step: 1.3**step / 10}, {"gradients"}),
        ({"grad_norm": lambda step: 4000.0 + step % 2}, {"gradients"}),
        ({"grad_norm": lambda step: float("inf")}, {"gradients"}),
    ],
)
def test_each_fault_of_a_series_fails_its_check_alone(
    series: dict[str, Any], checks: set[str]
) -> None:
    assert failed(rehearsed(**series)) == checks


def test_a_resume_may_differ_by_a_gpu_s_rounding_and_no_more() -> None:
    exact = rehearsed()
    for factor, expected in ((1.0001, set()), (1.01, {"resume"})):
        losses = dict(exact.values["loss"])
        losses[2] = {step: loss * factor for step, loss in losses[2].items()}
        assert failed(replace(exact, values={**exact.values, "loss": losses})) == expected
