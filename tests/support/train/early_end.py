"""A tiny training with a z-loss and averaged weights that ends early, continued in the middle."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer_runtime.core.protocol.event import Event
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.train.checkpoints.tensors import read_tensors

Events = list[dict[str, Any]]

# No evaluation is better by so much: the first one stays the best, and the third ends it.
CHANGES: Mapping[str, Any] = {
    "steps": 40,
    "optimizer__z_loss": 0.01,
    "eval": {
        "every_steps": 5,
        "batches": 2,
        "early_stopping": {"patience": 2, "metric": "val_loss", "min_delta": 100.0},
    },
    "checkpoint": {
        "every": 4, "keep_latest": 4, "keep_best": 1, "metric": "val_loss", "ema": 0.9
    },
}  # fmt: skip
BEST, MIDDLE, ENDS = 5, 8, 15
KEYS = ("loss", "z_loss", "objective", "grad_norm", "val_loss", "val_loss_ema")


def assert_ended_early(folder: Path, events: Events) -> None:
    """With what was reported apart, the best evaluation saved, and the words of a status."""
    values = values_of(events)
    assert max(step for _, step in values) == ENDS
    for (kind, _), (loss, z_loss, objective, _, _, averaged) in values.items():
        if kind == "metric":
            assert z_loss > 0 and abs(loss + z_loss - objective) < 1e-3 * loss
        else:
            assert averaged > 0
    assert values[("eval", ENDS)][-1] != values[("eval", ENDS)][-2]
    assert events[-1]["kind"] == "completed" and events[-1]["step"] == ENDS
    stored = {int(path.name[5:]) for path in folder.glob("checkpoints/step-*")}
    assert {BEST, MIDDLE, ENDS} <= stored
    progress = progress_of(events)
    assert progress.target_step == ENDS
    assert progress.stopped_early is not None
    assert "val_loss has not improved for 2 evaluations; best" in progress.stopped_early
    assert progress.stopped_early.endswith(f"at step {BEST}")


def assert_same_from(first: int, straight: Events, resumed: Events) -> None:
    """Of all steps and evaluations after the first."""
    expected = {of: values for of, values in values_of(straight).items() if of[1] > first}
    assert values_of(resumed) == expected


def take_checkpoint(straight: Path, resumed: Path, step: int) -> None:
    name = f"checkpoints/step-{step:08d}"
    shutil.copytree(straight / name, resumed / name)


def averages(folder: Path, step: int = ENDS) -> bytes:
    return (folder / f"checkpoints/step-{step:08d}/ema.safetensors").read_bytes()


def assert_averages_differ(folder: Path, weights: Mapping[str, Any]) -> None:
    """From the weights, whose names they have."""
    averaged = read_tensors(folder / f"checkpoints/step-{ENDS:08d}/ema.safetensors")
    assert averaged.keys() <= weights.keys()
    assert all(not tensor.equal(weights[name]) for name, tensor in averaged.items())


def values_of(events: Events) -> dict[tuple[str, int], tuple[Any, ...]]:
    return {
        (event["kind"], event["step"]): tuple(event["values"].get(key) for key in KEYS)
        for event in events
        if event["kind"] == "eval" or (event["kind"] == "metric" and "loss" in event["values"])
    }


def progress_of(events: Events) -> Progress:
    progress = Progress(attempt=1)
    for event in events:
        progress.apply(Event(event["seq"], event["t"], event["kind"], event))
    return progress
