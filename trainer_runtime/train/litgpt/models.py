"""The model that a training starts from, as a checkpoint of LitGPT's in the cache."""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch

from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.frameworks import litgpt as written
from trainer_runtime.train.attempt.config import ConfigError, ModelConfig, RunConfig
from trainer_runtime.train.checks.pickles import UnsafeTorchError, refuse_unsafe_torch

_WEIGHTS = "lit_model.pth"


def provide(config: RunConfig) -> None:
    """Puts the model at `core.frameworks.litgpt.start_folder`, unless it stands there.

    A folder of LitGPT's is linked to. Hugging Face's is converted by LitGPT, once for all runs; of
    several processes one converts and the others wait.

    Raises:
        ConfigError: the model is missing, or LitGPT doesn't know its kind.
    """
    wanted = written.start_folder(config)
    if wanted is None:
        return
    folder = Path(wanted)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / _WEIGHTS).exists():
            return
        model = config.model
        source = Path(model.path) if model.path else _downloaded(model)
        if not source.is_dir():
            raise ConfigError(f"model.path {source} is not a folder on this machine")
        made = folder.with_name(f".making-{folder.name}")
        shutil.rmtree(made, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        made.mkdir()
        for file in source.iterdir():
            (made / file.name).symlink_to(file.resolve())
        if not (made / _WEIGHTS).exists():
            _convert(made, _name(config, source))
        elif (made / "model_config.yaml").exists():
            _keep_weights_alone(made / _WEIGHTS)
        made.rename(folder)


def _keep_weights_alone(path: Path) -> None:
    """A training's checkpoint keeps the optimizer beside the weights: LitGPT starts from these.

    Raises:
        ConfigError: it can't be read.
    """
    try:
        refuse_unsafe_torch()
        held = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (OSError, RuntimeError, pickle.UnpicklingError, UnsafeTorchError) as error:
        first = str(error).strip().partition("\n")[0]
        raise ConfigError(f"model.path: {path.resolve()} can't be read: {first}") from None
    if isinstance(held.get("model"), Mapping):
        path.unlink()  # the link
        torch.save(dict(held["model"]), path)


def _convert(folder: Path, name: str) -> None:
    from litgpt.config import Config
    from litgpt.scripts.convert_hf_checkpoint import convert_hf_checkpoint

    try:
        Config.from_name(name)
    except ValueError:
        raise ConfigError(
            f"LitGPT knows no model {name!r}; name the one that this is by model.preset "
            "(`litgpt download list` names them)"
        ) from None
    try:
        convert_hf_checkpoint(folder, model_name=name)
    except (KeyError, ValueError, NotImplementedError) as error:
        raise ConfigError(f"LitGPT can't convert the model: {error}") from error


def _name(config: RunConfig, source: Path) -> str:
    """LitGPT's name for one of Hugging Face's models: model.preset, or the hub's or folder's."""
    model = config.model
    return str(model.preset or model.hub or _recorded_name(source) or source.name)


def _recorded_name(source: Path) -> str | None:
    """Where the model says that it comes from."""
    try:
        config = decode_fields((source / "config.json").read_bytes(), "config.json")
        recorded = config.find_text("_name_or_path")
    except (OSError, ValueError):
        return None
    return os.path.basename(recorded) if recorded else None


def _downloaded(model: ModelConfig) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(str(model.hub), revision=model.revision))
    except (HfHubHTTPError, LocalEntryNotFoundError, ValueError) as error:
        raise ConfigError(f"model.hub {model.hub} can't be had: {error}") from None
