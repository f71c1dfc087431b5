"""Finds the checkpoint to start from, past damaged ones, and puts its state back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.files.manifest import verify
from trainer_runtime.train.attempt.config import ConfigError, ResumeConfig
from trainer_runtime.train.attempt.weight_average import AVERAGES
from trainer_runtime.train.checkpoints.checkpoint_store import checkpoint_name, stored_steps
from trainer_runtime.train.checkpoints.tensors import TensorFileError, read_tensors

MODEL = "model"
OPTIMIZER = "optimizer"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A checkpoint that was not taken, and why."""

    step: int
    reason: str


@dataclass(frozen=True, slots=True)
class Restored:
    """A verified checkpoint, read whole; `average` of its weights, if it has one."""

    step: int
    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    state: Mapping[str, Any]
    average: Mapping[str, Tensor] | None = None


TakenT = TypeVar("TakenT")


def find(folder: Path, resume: ResumeConfig) -> tuple[Restored | None, list[Skipped]]:
    """The checkpoint to start from, None for a start from scratch; and those passed over.

    Raises:
        ConfigError: the one step that was asked for is missing or damaged.
    """
    return _first(folder, resume, read_checkpoint)


def choose(folder: Path, resume: ResumeConfig) -> tuple[int | None, list[Skipped]]:
    """The same for checkpoints that a framework reads by itself: the step of the one to take.

    Raises:
        ConfigError: the one step that was asked for is missing or damaged.
    """
    return _first(folder, resume, _verified_step)


def _first(
    folder: Path, resume: ResumeConfig, take: Callable[[Path, int], TakenT | Skipped]
) -> tuple[TakenT | None, list[Skipped]]:
    if resume.mode == "scratch":
        return None, []
    candidates = resume.candidates
    if candidates is None:
        candidates = tuple(reversed(stored_steps(folder)))
    skipped: list[Skipped] = []
    for step in candidates[:1] if resume.mode == "step" else candidates:
        taken = take(folder / checkpoint_name(step), step)
        if not isinstance(taken, Skipped):
            return taken, skipped
        skipped.append(taken)
    if resume.mode == "step":
        reasons = "; ".join(f"step {entry.step}: {entry.reason}" for entry in skipped)
        raise ConfigError(f"can't resume from the checkpoint asked for: {reasons or 'none named'}")
    return None, skipped


def _verified_step(path: Path, step: int) -> int | Skipped:
    problems = verify(path)
    return Skipped(step, "; ".join(problems)) if problems else step


def read_checkpoint(path: Path, step: int) -> Restored | Skipped:
    """Verifies every byte, then reads."""
    if problems := verify(path):
        return Skipped(step, "; ".join(problems))
    try:
        state = decode_fields((path / "state.json").read_bytes(), "state.json").values
        average = path / AVERAGES
        return Restored(
            step,
            read_tensors(path / f"{MODEL}.safetensors"),
            read_tensors(path / f"{OPTIMIZER}.safetensors"),
            state,
            read_tensors(average) if average.exists() else None,
        )
    except (OSError, ValueError, TensorFileError) as error:
        return Skipped(step, str(error))


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name; one that stands under two names counts once."""
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen or tensor.numel() == 0:
            seen.add(tensor.data_ptr())
            tensors[name] = tensor
    return tensors


@torch.no_grad()
def load_model(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copies weights into a model of the same shape.

    Raises:
        ConfigError: names or shapes differ.
    """
    expected = model_tensors(model)
    if differing := sorted(expected.keys() ^ tensors.keys()):
        raise ConfigError(f"the checkpoint is of another model: {', '.join(differing[:3])}")
    for name, tensor in expected.items():
        if tensor.shape != tensors[name].shape:
            raise ConfigError(
                f"the checkpoint is of another model: {name} is {tuple(tensors[name].shape)}, "
                f"not {tuple(tensor.shape)}"
            )
        tensor.copy_(tensors[name])
