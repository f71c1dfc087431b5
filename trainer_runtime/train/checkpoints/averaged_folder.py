"""Writes the average of checkpoints as a model's folder, as ./final is.

Uniform means: Izmailov et al. 2018 (arXiv:1803.05407) along a training, Wortsman et al. 2022
(arXiv:2203.05482) over several.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer_runtime.core.answers.averaged import FOLDER, AverageAnswer, AverageRequest
from trainer_runtime.core.files.manifest import Manifest, verify
from trainer_runtime.core.frameworks import framework_of
from trainer_runtime.train.attempt.config import ConfigError, ModelConfig, RunConfig
from trainer_runtime.train.attempt.weight_average import AVERAGES
from trainer_runtime.train.checkpoints import hf_export
from trainer_runtime.train.checkpoints.checkpoint_store import checkpoint_name
from trainer_runtime.train.checkpoints.checkpointer import CHECKPOINTS, model_documents
from trainer_runtime.train.checkpoints.folder import WRITING_PREFIX, remove_leftovers, seal_folder
from trainer_runtime.train.checkpoints.saved_tensors import AveragedTensors, SavedTensors
from trainer_runtime.train.checkpoints.tensors import write_tensors
from trainer_runtime.train.data import tokenizers

_WEIGHTS = "model*.safetensors"
# What transformers reads beside weights.
_BESIDE = ("config.json", "generation_config.json", "*token*.*", "vocab.*", "merges.txt", "*.jinja")


def write_average(config: RunConfig, request: AverageRequest) -> AverageAnswer:
    """Averages the checkpoints into `averaged/` of the working folder, the run's.

    Raises:
        ConfigError: one does not verify, their shapes differ, or their format is not averaged.
        OSError: it can't be written.
    """
    form = _weights_form(config)
    folders = {
        f"{run.run_id} step {step}": Path(run.folder) / CHECKPOINTS / checkpoint_name(step)
        for run in request.runs
        for step in run.steps
    }
    sources = [_opened(name, folder, ema=request.ema) for name, folder in folders.items()]
    weights = AveragedTensors(sources)
    remove_leftovers(Path())
    writing = Path(f"{WRITING_PREFIX}{FOLDER}-{os.getpid()}")
    try:
        writing.mkdir()
        if form == "ours":
            _write_own(writing, weights, config)
        else:
            _write_transformers(writing, weights, list(folders.values())[-1])
        step = max(request.runs[0].steps)
        manifest = Manifest(
            step, config.attempt.number, time.time(), {}, (FOLDER,), config.sha256, ()
        )
        sealed = seal_folder(writing, Path(FOLDER), manifest, lambda: None)
    finally:
        shutil.rmtree(writing, ignore_errors=True)
    return AverageAnswer(FOLDER, len(folders), len(weights), sealed.size_bytes)


def _weights_form(config: RunConfig) -> str:
    if config.adapter is not None:
        raise ConfigError(
            "an adapter is a product of factors, whose means are not the mean of the product"
        )
    form = framework_of(config.framework).weights
    if form is None:
        raise ConfigError(f"checkpoints of {config.framework} are not in safetensors")
    return form


def _opened(name: str, folder: Path, *, ema: bool) -> SavedTensors:
    if problems := verify(folder):
        raise ConfigError(f"{name} does not verify: {problems[0]}")
    files = sorted(folder.glob(_WEIGHTS))
    if not files:
        raise ConfigError(f"{name} has no whole weights: its ranks have written parts")
    if ema:
        if not (folder / AVERAGES).exists():
            raise ConfigError(f"{name} has no averaged weights: see `checkpoint.ema`")
        files.append(folder / AVERAGES)
    return SavedTensors(name, files)


def _write_own(writing: Path, weights: AveragedTensors, config: RunConfig) -> None:
    """Of nanogpt's scripts: as transformers loads it, as long as nobody has changed the model."""
    is_exported = hf_export.can_be_exported(weights, config.model)
    tensors = ExportedTensors(weights, config.model) if is_exported else weights
    _write_weights(writing, tensors)
    for name, document in model_documents(config, is_exported=is_exported).items():
        (writing / f"{name}.json").write_text(json.dumps(document, indent=2))
    for name, content in tokenizers.files_of(config.data).items():
        (writing / name).write_bytes(content)


def _write_transformers(writing: Path, weights: AveragedTensors, newest: Path) -> None:
    _write_weights(writing, weights)
    for pattern in _BESIDE:
        for path in newest.glob(pattern):
            shutil.copyfile(path, writing / path.name)


def _write_weights(writing: Path, weights: AveragedTensors | ExportedTensors) -> None:
    described = {name: torch.empty_like(weights.empty(name), device="meta") for name in weights}
    with (writing / "model.safetensors").open("wb") as file:
        write_tensors(file.write, weights, described)


class ExportedTensors(Mapping[str, Tensor]):
    """Weights of nanogpt's scripts under transformers' names, each made when it is asked for."""

    def __init__(self, weights: AveragedTensors, model: ModelConfig) -> None:
        self._weights, self._model = weights, model
        self._origins = {
            name: origin
            for origin in weights
            for name in hf_export.exported({origin: weights.empty(origin)}, model)
        }

    def __getitem__(self, name: str) -> Tensor:
        return self._exported(name, self._weights[self._origins[name]])

    def __iter__(self) -> Iterator[str]:
        return iter(self._origins)

    def __len__(self) -> int:
        return len(self._origins)

    def empty(self, name: str) -> Tensor:
        """A tensor of its type and shape, without its values."""
        return self._exported(name, self._weights.empty(self._origins[name]))

    def _exported(self, name: str, tensor: Tensor) -> Tensor:
        of_origin: dict[str, Any] = hf_export.exported({self._origins[name]: tensor}, self._model)
        exported: Tensor = of_origin[name]
        return exported
