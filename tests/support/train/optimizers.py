"""Every optimizer at a rate that suits tiny models, trained and continued in the middle."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from typing import Any

from support.host.tiny_training import SEQ_LEN, RunFolder

from trainer_runtime.core.config.optimizers import OPTIMIZERS

STEPS = 100
# AdamW's is 2e-3; that of those that nobody has published a multiple for was tried out.
_ADAMW = 2e-3
_TRIED = {"sgd": 0.1, "sm3": 0.05, "lion": 1e-3}
CHANGES: Mapping[str, Any] = {
    "steps": STEPS,
    "batch__tokens": 4 * SEQ_LEN,
    "batch__accumulation": 1,
    "schedule__kind": "constant",
    "eval__every_steps": STEPS // 2,
    "checkpoint__every": STEPS // 2,
}


def section(name: str) -> dict[str, Any]:
    """The resolved `optimizer` of a config, as it is planned."""
    record = OPTIMIZERS[name]
    return {
        "name": name,
        "lr": _TRIED.get(name, _ADAMW * (record.rate or 1.0)),
        "weight_decay": 0.1,
        "grad_clip": 1.0,
        "betas": None if record.betas is None else list(record.betas),
        "momentum": record.momentum,
        "eps": record.eps,
        "decay": record.usual_decay,
        "clip": "norm",
        "groups": [],
    }


def assert_it_learns(run: RunFolder) -> None:
    """The last ten losses are below the first ten by more than they vary."""
    losses = [
        event["values"]["loss"]
        for event in run.events()
        if event["kind"] == "metric" and "loss" in event["values"]
    ]
    assert len(losses) == STEPS
    assert sum(losses[-10:]) / 10 < sum(losses[:10]) / 10 - 0.2


def assert_continues_exactly(
    straight: RunFolder, resumed: RunFolder, train: Callable[[RunFolder, str], int], *keys: str
) -> None:
    """From the checkpoint in the middle on, a resumed run has the same values and weights."""
    middle = STEPS // 2
    kept = f"checkpoints/step-{middle:08d}"
    shutil.copytree(straight.folder / kept, resumed.folder / kept)
    resume = {"mode": "step", "candidates": [middle]}
    assert train(resumed, resumed.attempt_config(number=2, resume=resume)) == 0
    expected = {of: values for of, values in values_of(straight, *keys).items() if of[1] > middle}
    assert values_of(resumed, *keys, folder="attempts/2") == expected
    assert len(expected) == STEPS - middle + 1


def values_of(run: RunFolder, *keys: str, folder: str = ".") -> dict[tuple[str, int], Any]:
    return {
        (event["kind"], event["step"]): [event["values"].get(key) for key in keys]
        for event in run.events(folder)
        if event["kind"] == "eval" or (event["kind"] == "metric" and "loss" in event["values"])
    }
