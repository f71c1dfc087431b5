"""Runs of TRL's methods: one resumed from another, its series, weights and rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.train.preference_data import TrlRun, write_rows

LORA = {"kind": "lora", "r": 4, "alpha": 8.0, "targets": "auto", "quantize": None}
MakeRun = Callable[..., TrlRun]


def resumed(run: TrlRun, straight: TrlRun, step: int) -> TrlRun:
    """The run, trained from another one's checkpoint of a step to its end."""
    kept = f"checkpoints/step-{step:08d}"
    shutil.copytree(straight.folder / kept, run.folder / kept)
    assert run.train(mode="step", candidates=[step]) == 0
    return run


def from_step(run: TrlRun, first: int, *keys: str) -> dict[str, dict[int, Any]]:
    series = {key: run.series(key) for key in keys}
    return {
        key: {step: value for step, value in of.items() if step >= first}
        for key, of in series.items()
    }


def weights(run: TrlRun, name: str = "model.safetensors") -> bytes:
    return (run.folder / "final" / name).read_bytes()


def texts(folder: Path) -> Path:
    rows = [
        {"text": f"{number} bottles of water on the wall, take one. " * 4} for number in range(40)
    ]
    return write_rows(folder / "texts.jsonl", rows)
