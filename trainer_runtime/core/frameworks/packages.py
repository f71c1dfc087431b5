"""The packages that frameworks consist of, by their names on package indexes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from trainer_runtime.core.environment.requirements import name_of
from trainer_runtime.core.frameworks import FRAMEWORKS

# The module whose import proves that a package works; for packages that import lazily, the part
# that a training uses. Facts of a host list the versions of these.
_SHARED = {
    **{
        name: name
        for name in (
            *(
                "accelerate",
                "adlfs",
                "bitsandbytes",
                "clearml",
                "datasets",
                "datatrove",
                "deepspeed",
            ),
            *(
                "gcsfs",
                "mlflow",
                "neptune",
                "peft",
                "s3fs",
                "sentencepiece",
                "spacy",
                "tensorboard",
            ),
            *("wandb", "zstandard"),
        )
    },
    "bpe-openai": "bpe_openai",
    "comet-ml": "comet_ml",
    "protobuf": "google.protobuf",
    "transformers": "transformers.trainer",
}
_OWN = {name: module for own in FRAMEWORKS.values() for name, module in own.modules.items()}
MODULES: Mapping[str, str] = MappingProxyType(dict(sorted((_SHARED | _OWN).items())))

# Frameworks import these where they find them and need them for nothing that we train: an
# environment is better without one that doesn't go with its PyTorch.
DISPENSABLE: tuple[str, ...] = ("torchaudio", "torchvision")

# Sources alone are published, whose setup imports PyTorch: built where that is, by these variables
# (kernels are compiled when they are first used).
BUILT_IN_PLACE: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"deepspeed": MappingProxyType({"DS_BUILD_OPS": "0"})}
)
BUILD_TOOLS: tuple[str, ...] = ("setuptools", "wheel")


def modules_of(lines: Iterable[str]) -> tuple[str, ...]:
    """What must be importable where these requirement lines are met."""
    modules = (MODULES.get(name_of(line) or "") for line in lines)
    return tuple(module for module in modules if module is not None)
