"""What generating text from a training needs: its newest weights, and the byte tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor

from trainer_runtime.core.files.manifest import verify
from trainer_runtime.core.records import dataclass
from trainer_runtime.train.attempt.config import ConfigError, RunConfig, read_config
from trainer_runtime.train.checkpoints.checkpoint_store import checkpoint_name, stored_steps
from trainer_runtime.train.checkpoints.checkpointer import CHECKPOINTS, FINAL
from trainer_runtime.train.checkpoints.restore import MODEL
from trainer_runtime.train.checkpoints.tensors import read_tensors
from trainer_runtime.train.loop import startup

END_OF_TEXT = 256


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """Weights with the configuration that they were trained by; `origin` says where they lay."""

    config: RunConfig
    weights: Mapping[str, Tensor]
    origin: Path


def trained_model(run_folder: Path) -> TrainedModel:
    """The exported model of a run's folder, or else its newest checkpoint that verifies.

    Raises:
        ConfigError: there is neither.
    """
    startup.end_imports()
    final = run_folder / FINAL
    if not verify(final):
        return _read(read_config(final / "config.json"), final)
    checkpoints = run_folder / CHECKPOINTS
    for step in reversed(stored_steps(checkpoints)):
        folder = checkpoints / checkpoint_name(step)
        if not verify(folder):
            return _read(read_config(run_folder / "config.json"), folder)
    raise ConfigError(f"no trained model in {run_folder}: neither final/ nor a whole checkpoint")


def encode(text: str) -> list[int]:
    """Byte tokens; the end-of-text token for an empty text, since a model needs a start."""
    return list(text.encode()) or [END_OF_TEXT]


def decode(tokens: Iterable[int]) -> str:
    """Text up to the first end-of-text token; bytes that are no UTF-8 show as U+FFFD."""
    found = bytearray()
    for token in tokens:
        if token >= END_OF_TEXT:
            break
        found.append(token)
    return found.decode(errors="replace")


def _read(config: RunConfig, folder: Path) -> TrainedModel:
    return TrainedModel(config, read_tensors(folder / f"{MODEL}.safetensors"), folder)
