"""What a trainer demands of the resolved `config.json`, beyond what `core/config` reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trainer_runtime.core.config import (
    CONFIG_VERSION,
    AttemptConfig,
    BatchConfig,
    CheckpointConfig,
    ComputeConfig,
    ConfigDocument,
    DataConfig,
    DerivedConfig,
    EvaluationConfig,
    ModelConfig,
    OptimizerConfig,
    ResumeConfig,
    RunConfig,
    ScheduleConfig,
    Skip,
    SourceConfig,
)
from trainer_runtime.core.config.model import STYLES
from trainer_runtime.core.decoding import DecodingError
from trainer_runtime.core.frameworks import choices_of
from trainer_runtime.core.frameworks.framework import UnknownChoiceError
from trainer_runtime.core.protocol.duration import parse_duration

__all__ = [
    "CONFIG_VERSION",
    "AttemptConfig",
    "BatchConfig",
    "CheckpointConfig",
    "ComputeConfig",
    "ConfigError",
    "DataConfig",
    "DerivedConfig",
    "EvaluationConfig",
    "ModelConfig",
    "OptimizerConfig",
    "ResumeConfig",
    "RunConfig",
    "ScheduleConfig",
    "Skip",
    "SourceConfig",
    "read_config",
    "read_run_config",
    "sizes_of",
]

# Sections and their fields without which nothing can be trained.
_REQUIRED = {
    "data": ("sources", "tokenizer", "seq_len", "fingerprint", "cache_dir"),
    "batch": ("tokens", "micro_batch", "accumulation"),
    "optimizer": ("lr",),
    "schedule": (),
    "checkpoint": ("every",),
}
_SIZES = ("n_layer", "n_head", "n_kv_head", "d_model", "d_ff", "vocab_size")


class ConfigError(Exception):
    """The configuration can't be trained; a retry without a change would end the same way."""


def read_config(path: Path) -> RunConfig:
    """The configuration of a training of our own model.

    Raises:
        ConfigError: it can't be read, lacks a field, or asks for what can't be.
    """
    config = read_run_config(path)
    sizes_of(config)
    return config


def refuse_another_script(config: RunConfig, choices: Mapping[str, str]) -> None:
    """Nothing, if train.py was rendered for such a configuration; `choices` are the script's.

    Raises:
        ConfigError: the configuration asks for what stands in another script.
    """
    if not choices:
        return
    try:
        wanted = choices_of(config)
    except UnknownChoiceError as error:
        raise ConfigError(str(error)) from None
    for name, value in choices.items():
        if wanted.get(name) != value:
            asked = wanted.get(name) or f"framework {config.framework}"
            raise ConfigError(
                f"train.py is made for {name} {value}, config.json asks for {asked}: "
                "that never changes in a run; launch a new one"
            )


def sizes_of(config: RunConfig) -> ModelConfig:
    """The model, where it is built from its sizes.

    Raises:
        ConfigError: one is missing, or they don't go together.
    """
    _require(config.document, "model", _SIZES)
    model = config.model
    if min(model.n_head, model.n_kv_head) < 1:
        raise ConfigError("model.n_head and model.n_kv_head must be at least 1")
    if model.d_model % model.n_head or model.n_head % model.n_kv_head:
        raise ConfigError("model.n_head must divide d_model, and n_kv_head must divide n_head")
    if model.style not in STYLES:
        raise ConfigError(f"model.style {model.style!r} is none of {', '.join(STYLES)}")
    return model


def read_run_config(path: Path) -> RunConfig:
    """The configuration of any training; the sizes of its model are the framework's to know.

    Raises:
        ConfigError: it can't be read, lacks a field, or asks for what can't be.
    """
    try:
        config = RunConfig.parse(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error}") from None
    except DecodingError as error:
        raise ConfigError(str(error)) from None
    if config.document.get("config_version") != CONFIG_VERSION:
        raise ConfigError(f"{path} has no config_version {CONFIG_VERSION}")
    for section, names in _REQUIRED.items():
        _require(config.document, section, names)
    _refuse_impossible(config)
    return config


def _require(document: ConfigDocument, section: str, names: Sequence[str]) -> None:
    values = document.get(section)
    if not isinstance(values, dict):
        raise ConfigError(f"{section} is missing")
    for name in names:
        if name not in values:
            raise ConfigError(f"{section}.{name} is missing")


def _refuse_impossible(config: RunConfig) -> None:
    if config.steps < 1 or config.batch.micro_batch < 1 or config.batch.accumulation < 1:
        raise ConfigError("steps, batch.micro_batch and batch.accumulation must be at least 1")
    if config.precision not in ("fp32", "bf16", "fp16"):
        raise ConfigError(f"precision {config.precision!r} is none of fp32, bf16, fp16")
    if config.attempt.resume.mode not in ("latest", "step", "scratch"):
        raise ConfigError(f"attempt.resume.mode {config.attempt.resume.mode!r} is not known")
    try:
        if isinstance(config.checkpoint.every, str):
            parse_duration(config.checkpoint.every)
        elif config.checkpoint.every < 1:
            raise ValueError("it must be at least 1 step")
    except ValueError as error:
        raise ConfigError(f"checkpoint.every: {error}") from None
