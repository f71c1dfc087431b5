"""The packages that a training needs besides PyTorch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from trainer_runtime.core.config.optimizers import BITSANDBYTES, OPTIMIZERS
from trainer_runtime.core.environment.requirements import name_of, normalised, satisfied
from trainer_runtime.core.frameworks.packages import BUILD_TOOLS
from trainer_runtime.core.inputs.object_store import STORES
from trainmaster.plan.frameworks import FRAMEWORKS, Framework
from trainmaster.plan.frameworks.packages import (
    DATASETS,
    DEEPSPEED,
    PEFT,
    PYTORCH_OPTIMIZER,
    SHARED,
    TRANSFORMERS,
    Package,
)

_OWN = (package for record in FRAMEWORKS.values() for package in record.packages)
PACKAGES: Mapping[str, Package] = {
    package.name: package for package in sorted((*SHARED, *_OWN), key=attrgetter("name"))
}
# Nothing of ours depends on their versions: the framework's own logger does the talking.
_LOGGERS: Mapping[str, str] = {
    "clearml": "clearml>=1.16,<3",
    "comet": "comet-ml>=3.47,<4",
    "comet_ml": "comet-ml>=3.47,<4",
    "mlflow": "mlflow>=3,<4",
    "neptune": "neptune>=1.10,<2",
    "tensorboard": "tensorboard>=2.18,<3",
    "wandb": "wandb>=0.22,<0.32",
}
# Those whose requirements go with the frameworks'.
_LOCKED_LOGGERS = ("tensorboard", "wandb")
# By `core.files.tokenizer_folder.packages_to_read`, and what ships encodings of tiktoken.
_TOKENIZERS: Mapping[str, str] = {
    "bpe-openai": "bpe-openai>=0.1.4,<0.2",
    "protobuf": "protobuf>=4,<8",
    "sentencepiece": "sentencepiece>=0.1.99,<0.3",
}
# By `core.files.compression.method_of`; Python has the others itself.
_DECOMPRESSORS: Mapping[str, str] = {"zstd": "zstandard>=0.22,<0.26"}
# Encodes much text faster than `tokenizers` where it gives the same tokens.
BULK_ENCODER = "tiktoken>=0.9,<0.15"
# Splitting words takes spaCy, without a model of it.
_FILTERS = ("datatrove>=0.8,<0.11", "spacy>=3.8,<3.9")
_QUANTIZER = "bitsandbytes>=0.46,<0.51"
_READ_BY_DATASETS = frozenset({"parquet", "arrow", "hf"})


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A package that is not as the plan wants it; `there` is None where it is missing."""

    name: str
    there: str | None
    wanted: str


def requirements(
    framework: Framework,
    *,
    strategy: str = "single",
    adapter: Mapping[str, Any] | None = None,
    tracking: Mapping[str, Any] | None = None,
    tokenizer: str = "byte",
    tokenizer_packages: Collection[str] = (),
    formats: Collection[str] = (),
    compression: Collection[str] = (),
    stores: Collection[str] = (),
    optimizer: str = "adamw",
    filters: bool = False,
) -> tuple[str, ...]:
    """Requirement lines of everything but PyTorch, for an environment that is built. `stores`: the
    lines of what reads object stores."""
    packages = list(framework.packages)
    if tokenizer != "byte":
        packages.append(TRANSFORMERS)
    if not _READ_BY_DATASETS.isdisjoint(formats):
        packages.append(DATASETS)
    if adapter is not None and not framework.has_own_adapters:
        packages.append(PEFT)
    if strategy.startswith("zero"):
        packages.append(DEEPSPEED)
    optimizer_package = OPTIMIZERS[optimizer].package
    if optimizer_package == PYTORCH_OPTIMIZER.name:
        packages.append(PYTORCH_OPTIMIZER)
    lines = [package.line for package in packages]
    lines += [_TOKENIZERS[name] for name in tokenizer_packages]
    lines += [_DECOMPRESSORS[method] for method in compression if method in _DECOMPRESSORS]
    lines += stores
    lines += _FILTERS if filters else ()
    quantizes = adapter is not None and adapter.get("quantize") is not None
    if quantizes or optimizer_package == BITSANDBYTES:
        lines.append(_QUANTIZER)
    chosen = [name for name, setting in (tracking or {}).items() if setting not in (None, False)]
    lines += [_LOGGERS[name] for name in chosen if name in _LOGGERS]
    return tuple(dict.fromkeys(lines))


def lockable() -> tuple[str, ...]:
    """All lines that `requirements` may give, from which `packages.lock` is resolved."""
    lines = [f"{package.line} {package.marker}".strip() for package in PACKAGES.values()]
    lines += [_QUANTIZER, BULK_ENCODER, *_TOKENIZERS.values(), *_DECOMPRESSORS.values()]
    lines += [*_FILTERS, *(store.package for store in STORES.values())]
    return (*BUILD_TOOLS, *lines, *(_LOGGERS[name] for name in _LOCKED_LOGGERS))


def accepted(lines: Iterable[str]) -> tuple[str, ...]:
    """The same for an interpreter that is taken as it is: ranges where other versions work, too."""
    ranges = {name: f"{name}{package.accepted}" for name, package in PACKAGES.items()}
    return tuple(ranges.get(name_of(line) or "", line) for line in lines)


def frameworks_there(packages: Mapping[str, str]) -> list[str]:
    """The frameworks that these packages (versions by name) and a PyTorch can run as they are."""
    return [
        record.name
        for record in FRAMEWORKS.values()
        if not record.runs_program and not mismatches(accepted(requirements(record)), packages)
    ]


def mismatches(lines: Iterable[str], packages: Mapping[str, str]) -> list[Mismatch]:
    """Those of the lines that the packages (versions by name) don't meet."""
    installed = {normalised(name): version for name, version in packages.items()}
    mismatched = []
    for line in lines:
        name = name_of(line) or line
        if not satisfied(line, installed):
            mismatched.append(Mismatch(name, installed.get(name), line.removeprefix(name)))
    return mismatched
