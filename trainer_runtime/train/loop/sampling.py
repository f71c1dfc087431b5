"""What generating text from a training needs: its weights, and its tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from trainer_runtime.core.answers.averaged import FOLDER as AVERAGED
from trainer_runtime.core.answers.sampled import SampleRequest
from trainer_runtime.core.files.manifest import verify
from trainer_runtime.core.files.tokenizer_folder import BYTE, NONE
from trainer_runtime.train.attempt.config import ConfigError, RunConfig, read_config
from trainer_runtime.train.attempt.weight_average import AVERAGE, AVERAGES
from trainer_runtime.train.checkpoints.checkpoint_store import checkpoint_name, stored_steps
from trainer_runtime.train.checkpoints.checkpointer import CHECKPOINTS, FINAL, RUN_CONFIG
from trainer_runtime.train.checkpoints.hf_export import imported
from trainer_runtime.train.checkpoints.restore import MODEL
from trainer_runtime.train.checkpoints.tensors import read_tensors
from trainer_runtime.train.data.tokenizers import Tokenizer, open_tokenizer, tokenizer_of
from trainer_runtime.train.loop import startup


@dataclass(frozen=True, slots=True)
class SavedModel:
    """What a run's `request` for texts is answered by: the weights in `folder`, on `device`.

    `attempt`: the folder of the attempt whose `config` it is.
    """

    config: RunConfig
    attempt: Path
    folder: Path
    request: SampleRequest
    device: str

    @property
    def averages(self) -> Mapping[str, Tensor]:
        """The averaged weights that take the place of the saved ones, where they are asked for."""
        return read_tensors(self.folder / AVERAGES) if self.request.start == AVERAGE else {}


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """Weights with the configuration that they were trained by; `origin` says where they lay."""

    config: RunConfig
    weights: Mapping[str, Tensor]
    origin: Path

    @property
    def tokenizer(self) -> Tokenizer:
        """The run's own, or its copy beside the exported model.

        Raises:
            ConfigError: it can't be used.
        """
        name = self.config.data.tokenizer
        if name in (BYTE, NONE) or Path(name).is_dir():
            return tokenizer_of(self.config.data)
        return open_tokenizer(str(self.origin))


def transformers_folder(folder: Path) -> Path:
    """The folder of transformers that a program's checkpoint is or holds.

    Raises:
        ConfigError: there is none.
    """
    for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        if (place / "config.json").is_file() and any(place.glob("*.safetensors")):
            return place
    raise ConfigError(
        "the program's checkpoint is not a folder of transformers (config.json, *.safetensors): "
        "only the program knows how to load it"
    )


def weights_folder(run_folder: Path, start: str | None) -> Path:
    """The folder that verifies: `final`, `averaged`, `latest` for the newest checkpoint, `ema` for
    the newest with averaged weights, or that of a step; None: the final model, else the newest
    checkpoint.

    Raises:
        ConfigError: there is none, or it is damaged.
    """
    checkpoints = run_folder / CHECKPOINTS
    if start in (None, FINAL.name, AVERAGED):
        exported = run_folder / (start or FINAL.name)
        problems = verify(exported)
        if not problems:
            return exported
        if start is not None:
            raise ConfigError(f"no whole {exported.name}/: {problems[0]}")
    elif start not in ("latest", AVERAGE):
        folder = checkpoints / checkpoint_name(int(start))
        if problems := verify(folder):
            raise ConfigError(f"the checkpoint of step {start} is not whole: {problems[0]}")
        return folder
    for step in reversed(stored_steps(checkpoints)):
        folder = checkpoints / checkpoint_name(step)
        if (start != AVERAGE or (folder / AVERAGES).exists()) and not verify(folder):
            return folder
    if start == AVERAGE:
        raise ConfigError("no whole checkpoint has averaged weights: see `checkpoint.ema`")
    raise ConfigError(f"no trained model in {run_folder}: neither final/ nor a whole checkpoint")


def trained_model(run_folder: Path, start: str | None = None) -> TrainedModel:
    """The model of a run's folder; `start` as in `weights_folder`.

    Raises:
        ConfigError: there is none.
    """
    startup.end_imports()
    folder = weights_folder(run_folder, start)
    if folder.name in (FINAL.name, AVERAGED):
        return _exported(folder)
    saved = _read(read_config(run_folder / "config.json"), folder)
    if start != AVERAGE:
        return saved
    return replace(saved, weights={**saved.weights, **read_tensors(folder / AVERAGES)})


def _exported(final: Path) -> TrainedModel:
    path = final / f"{RUN_CONFIG}.json"
    if not path.exists():  # of a script that somebody has changed, or of an earlier version
        return _read(read_config(final / "config.json"), final)
    config = read_config(path)
    exported_model = _read(config, final)
    return replace(exported_model, weights=imported(exported_model.weights, config.model))


def _read(config: RunConfig, folder: Path) -> TrainedModel:
    return TrainedModel(config, read_tensors(folder / f"{MODEL}.safetensors"), folder)
