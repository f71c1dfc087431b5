"""The resolved `config.json`, read into typed parts.

Every `auto` was decided by the plan. Fields that this trainer does not use are ignored, so that an
older runtime reads a newer config of the same version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from trainer_runtime.core.frameworks.choices import UnknownChoiceError, choices_of
from trainer_runtime.core.protocol.duration import parse_duration

CONFIG_VERSION = 1


class ConfigError(Exception):
    """The configuration can't be trained; a retry without a change would end the same way."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The architecture. `style` gpt2 or llama; `d_ff` is the hidden width of the feed-forward."""

    n_layer: int
    n_head: int
    n_kv_head: int
    d_model: int
    d_ff: int
    vocab_size: int
    style: str = "gpt2"
    dropout: float = 0.0


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """One data source; weights count relative to their sum."""

    name: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Skip:
    """After step `at_step` the data position jumps ahead by so many sequences."""

    at_step: int
    sequences: int


@dataclass(frozen=True, slots=True)
class DataConfig:
    sources: tuple[SourceConfig, ...]
    tokenizer: str
    seq_len: int
    fingerprint: str
    cache_dir: str
    skip: tuple[Skip, ...] = ()

    @property
    def folder(self) -> Path:
        return Path(self.cache_dir) / "data" / self.fingerprint


@dataclass(frozen=True, slots=True)
class BatchConfig:
    """`micro_batch` is sequences per rank; `tokens` of one optimizer step over all ranks."""

    tokens: int
    micro_batch: int
    accumulation: int


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    lr: float
    name: str = "adamw"
    weight_decay: float = 0.1
    grad_clip: float = 1.0
    betas: tuple[float, float] = (0.9, 0.95)


@dataclass(frozen=True, slots=True)
class ScheduleConfig:
    kind: str = "cosine"
    warmup_steps: int = 0
    min_lr_ratio: float = 0.1


@dataclass(frozen=True, slots=True)
class EvaluationConfig:
    """`every_steps` None or 0: only the last step is evaluated; `batches` 0: never."""

    every_steps: int | None = None
    batches: int = 8


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """`every`: a number of steps, or a duration such as 90s, 10m, 1h."""

    every: int | str
    every_is_auto: bool = False
    keep_latest: int = 3
    keep_best: int = 1
    keep_every_steps: int | None = None
    metric: str = "val_loss"


@dataclass(frozen=True, slots=True)
class ComputeConfig:
    device: str = "cpu"
    threads: int | None = None
    compile: bool = False


@dataclass(frozen=True, slots=True)
class DerivedConfig:
    """`flops_per_token` counts forward and backward; `peak_flops` per second, None: find out."""

    flops_per_token: float | None = None
    peak_flops: float | None = None


@dataclass(frozen=True, slots=True)
class ResumeConfig:
    """Where to start. `candidates` None: every checkpoint there is, newest first."""

    mode: str = "latest"
    candidates: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class AttemptConfig:
    number: int = 1
    resume: ResumeConfig = ResumeConfig()


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What every framework's training has, every value decided. `document` is the JSON as read."""

    data: DataConfig
    batch: BatchConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    evaluation: EvaluationConfig
    checkpoint: CheckpointConfig
    compute: ComputeConfig
    derived: DerivedConfig
    attempt: AttemptConfig
    steps: int
    precision: str
    seed: int
    document: Mapping[str, Any]

    @property
    def sha256(self) -> str:
        """The digest of what is trained; the attempt does not count."""
        kept = {key: value for key, value in self.document.items() if key != "attempt"}
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig(RunConfig):
    """A training whose model is our own."""

    model: ModelConfig


def read_config(path: Path) -> TrainingConfig:
    """The configuration of a training of our own model.

    Raises:
        ConfigError: it can't be read, lacks a field, or asks for what can't be.
    """
    document = _read(path)
    config = TrainingConfig(**_parts(document), model=read_model_config(document))
    _refuse_impossible(config)
    return config


def refuse_another_script(config: RunConfig, choices: Mapping[str, str]) -> None:
    """Nothing, if train.py was rendered for such a configuration; `choices` are the script's.

    Raises:
        ConfigError: the configuration asks for what stands in another script.
    """
    if not choices:
        return
    try:
        wanted = choices_of(config.document)
    except UnknownChoiceError as error:
        raise ConfigError(str(error)) from None
    for name, value in choices.items():
        if wanted.get(name) != value:
            asked = wanted.get(name) or f"framework {config.document['framework']}"
            raise ConfigError(
                f"train.py is made for {name} {value}, config.json asks for {asked}: "
                "that never changes in a run; launch a new one"
            )


def read_model_config(document: Mapping[str, Any]) -> ModelConfig:
    """The sizes of a model that is made anew.

    Raises:
        ConfigError: one is missing, or they don't go together.
    """
    model = _part(ModelConfig, _section(document, "model"), "model")
    _refuse_impossible_model(model)
    return model


def read_run_config(path: Path) -> RunConfig:
    """The configuration of any training; the model's part stands in `document` alone.

    Raises:
        ConfigError: it can't be read, lacks a field, or asks for what can't be.
    """
    config = RunConfig(**_parts(_read(path)))
    _refuse_impossible(config)
    return config


def _read(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} can't be read: {error}") from None
    if not isinstance(document, dict) or document.get("config_version") != CONFIG_VERSION:
        raise ConfigError(f"{path} has no config_version {CONFIG_VERSION}")
    return document


def _parts(document: Mapping[str, Any]) -> dict[str, Any]:
    data = _section(document, "data")
    attempt = document.get("attempt") or {}
    resume = attempt.get("resume") or {}
    candidates = resume.get("candidates")
    return {
        "data": _part(
            DataConfig,
            {
                **data,
                "sources": tuple(
                    _part(SourceConfig, source, "data.sources[]") for source in data["sources"]
                ),
                "skip": tuple(_part(Skip, skip, "data.skip[]") for skip in data.get("skip") or ()),
            },
            "data",
        ),
        "batch": _part(BatchConfig, _section(document, "batch"), "batch"),
        "optimizer": _optimizer(_section(document, "optimizer")),
        "schedule": _part(ScheduleConfig, _section(document, "schedule"), "schedule"),
        "evaluation": _part(EvaluationConfig, document.get("eval") or {}, "eval"),
        "checkpoint": _part(CheckpointConfig, _section(document, "checkpoint"), "checkpoint"),
        "compute": _part(ComputeConfig, document.get("compute") or {}, "compute"),
        "derived": _part(DerivedConfig, document.get("derived") or {}, "derived"),
        "attempt": AttemptConfig(
            number=attempt.get("number", 1),
            resume=ResumeConfig(
                mode=resume.get("mode", "latest"),
                candidates=None if candidates is None else tuple(candidates),
            ),
        ),
        "steps": document.get("steps") or 0,
        "precision": document.get("precision", "fp32"),
        "seed": document.get("seed", 1337),
        "document": document,
    }


def _section(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = document.get(name)
    if not isinstance(section, dict):
        raise ConfigError(f"{name} is missing")
    return section


def _optimizer(section: Mapping[str, Any]) -> OptimizerConfig:
    if "betas" in section:
        section = {**section, "betas": tuple(section["betas"])}
    return _part(OptimizerConfig, section, "optimizer")


PartT = TypeVar("PartT")


def _part(kind: type[PartT], section: Mapping[str, Any], where: str) -> PartT:
    """A dataclass from the fields that it knows; absent ones take their defaults."""
    known = {}
    for field in fields(kind):  # type: ignore[arg-type]  # only dataclasses are passed
        if field.name in section:
            known[field.name] = section[field.name]
        elif field.default is MISSING:
            raise ConfigError(f"{where}.{field.name} is missing")
    return kind(**known)


def _refuse_impossible_model(model: ModelConfig) -> None:
    if model.d_model % model.n_head or model.n_head % model.n_kv_head:
        raise ConfigError("model.n_head must divide d_model, and n_kv_head must divide n_head")
    if model.style not in ("gpt2", "llama"):
        raise ConfigError(f"model.style {model.style!r} is neither gpt2 nor llama")


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
