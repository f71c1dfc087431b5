"""Real trainings that are killed at random moments, at the borders of their phases too."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from support.host.run_configs import Config
from support.host.tiny_training import TinyRun, prepared_config, wait_for
from support.train.litgpt_training import pretraining
from support.train.preference_data import make_run, pairs, save_tiny_model, write_rows

from trainer_runtime.train.checkpoints.tensors import read_tensors


def of_hf(folder: Path) -> Config:
    text = Path(__file__).read_bytes() * 12
    return prepared_config(folder, "hf", text, docs=text[::-1])


def of_trl(folder: Path) -> Config:
    rows = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in pairs(160)]
    files = [write_rows(folder / f"{n}.jsonl", rows[n::2]) for n in range(2)]
    sources = [
        {"name": name, "path": str(path), "format": "jsonl", "weight": 1.0}
        for name, path in zip(("main", "docs"), files, strict=True)
    ]
    model = save_tiny_model(folder / "model")
    return make_run(folder / "unused", model, files[0], "sft", data={"sources": sources}).config


# Configurations of two sources, `main` and `docs`.
FRAMEWORKS: Mapping[str, Callable[[Path], Config]] = {
    "hf": of_hf,
    "litgpt": pretraining,
    "trl": of_trl,
}


def weights_of(run: TinyRun) -> Mapping[str, torch.Tensor]:
    """Those of ./final."""
    final = run.folder / "final"
    if (final / "lit_model.pth").exists():
        loaded: dict[str, torch.Tensor] = torch.load(final / "lit_model.pth", weights_only=True)
        return loaded
    return read_tensors(final / "model.safetensors")


def assert_same(killed: TinyRun, straight: TinyRun) -> None:
    """Every step, every evaluation and the weights, bit for bit."""
    keys = ("loss", "grad_norm", "lr", "val_loss")
    assert killed.values_by_step(*keys) == straight.values_by_step(*keys)
    expected, weights = weights_of(straight), weights_of(killed)
    assert weights.keys() == expected.keys()
    assert all(weights[tensor].equal(expected[tensor]) for tensor in expected)


def kill(run: TinyRun, moments: random.Random, borders: Sequence[int]) -> int:
    """Starts an attempt and kills it, half of the times at a border; its exit code, which is 0
    where the run came to its end before."""
    if moments.randrange(2):
        return _kill_at_a_border(run, moments.choice(borders), moments)
    return run.end_at(moments.randrange(1, borders[-1]), signal.SIGKILL)


def _kill_at_a_border(run: TinyRun, step: int, moments: random.Random) -> int:
    """As soon as its evaluation, verdict or checkpoint is recorded, wherever that hits."""
    kind, before = moments.choice(("eval", "phase", "checkpoint")), len(run.events())
    process = run.start()
    wait_for(
        process,
        lambda: any(e["kind"] == kind and e["step"] >= step for e in run.events()[before:]),
    )
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode
