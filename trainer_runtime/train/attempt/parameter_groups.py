"""Sorts a model's parameters into the groups of its optimizer, by their names and shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn

from trainer_runtime.core.config.optimization import GroupConfig
from trainer_runtime.train.attempt.config import ConfigError, OptimizerConfig

# As Fabric, DDP, compiled models and recomputed blocks name what they wrap.
_WRAPPERS = frozenset(
    ("_forward_module", "module", "_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
)


@dataclass(frozen=True, slots=True)
class _Kind:
    """What the parameters of a group have in common."""

    orthogonalized: bool
    lr_scale: float
    weight_decay: float


def parameter_groups(
    model: nn.Module,
    config: OptimizerConfig,
    dimensions: Mapping[str, int],
    *,
    orthogonalizes: bool = False,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The groups of all trained parameters, and before them, where the optimizer `orthogonalizes`,
    those of the blocks' matrices.

    Matrices are decayed; vectors (biases, norms' gains) are not. The first group of
    `optimizer.groups` that matches a name counts.

    Raises:
        ConfigError: a group of the configuration matches no parameter.
    """
    bases = [_Kind(orthogonalizes, 1.0, config.weight_decay), _Kind(False, 1.0, 0.0)]
    if orthogonalizes:
        bases.insert(1, _Kind(False, 1.0, config.weight_decay))
    members: dict[_Kind, list[nn.Parameter]] = {kind: [] for kind in bases}
    matched = set()
    embeddings = _embeddings(model)
    for name, parameter in trained(model):
        group = next((g for g in config.groups if fnmatchcase(name, g.match)), None)
        matched.add(group)
        size = dimensions.get(name, _dimensions_of(parameter))
        is_matrix = orthogonalizes and size == 2 and _is_of_block(name, parameter, embeddings)
        decay = config.weight_decay if size >= 2 else 0.0
        members.setdefault(_kind(group, decay, is_matrix), []).append(parameter)
    unmatched = [group.match for group in config.groups if group not in matched]
    if unmatched:
        names = ", ".join(name for name, _ in trained(model))
        raise ConfigError(f"optimizer.groups: no parameter is named {unmatched[0]}, of {names}")
    groups = [_described(kind, of) for kind, of in members.items()]
    split = [kind.orthogonalized for kind in members]
    return (
        [group for group, is_matrix in zip(groups, split, strict=True) if is_matrix],
        [group for group, is_matrix in zip(groups, split, strict=True) if not is_matrix],
    )


def trained(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters that are trained, by their plain names."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            yield plain_name(name), parameter


def dimensions_of(model: nn.Module) -> dict[str, int]:
    """How many each parameter has, by its plain name, before the model is parted."""
    return {plain_name(name): of.dim() for name, of in model.named_parameters()}


def plain_name(name: str) -> str:
    """A parameter's name without those of what the model was wrapped in."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def _kind(group: GroupConfig | None, decay: float, is_matrix: bool) -> _Kind:
    if group is None:
        return _Kind(is_matrix, 1.0, decay)
    own = decay if group.weight_decay is None else group.weight_decay
    return _Kind(is_matrix, group.lr_scale, own)


def _described(kind: _Kind, parameters: list[nn.Parameter]) -> dict[str, Any]:
    group: dict[str, Any] = {"params": parameters, "weight_decay": kind.weight_decay}
    return group if kind.lr_scale == 1.0 else {**group, "lr_scale": kind.lr_scale}


def _embeddings(model: nn.Module) -> set[Tensor]:
    return {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}


def _is_of_block(name: str, parameter: nn.Parameter, embeddings: set[Tensor]) -> bool:
    """Blocks are numbered in every framework: `blocks.0`, `model.layers.0`, `transformer.h.0`."""
    return parameter not in embeddings and any(part.isdigit() for part in name.split("."))


def _dimensions_of(parameter: nn.Parameter) -> int:
    """Those of the whole, where DeepSpeed has parted it among the ranks."""
    return len(getattr(parameter, "ds_shape", parameter.shape))
