"""An optimizer's state under the names of its parameters.

Numbers that count steps, and those that some optimizers keep for a whole group, belong to the
state; rates, decay and betas do not: they are always those of the present configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.attempt.parameter_groups import plain_name, trained

# What groups keep of a training, of pytorch-optimizer's classes.
_OF_GROUPS = ("step", "weight_sum", "lr_max", "train_mode")
_GROUP = "group."
# Numbers of Python are written as tensors of these types, which no optimizer has for its state.
_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64}


class NamedState:
    """Gives an optimizer's documents parameters' names, in place of numbers, once it has `names`.

    Other optimizers of PyTorch load these, too, as they go by the order of the groups' parameters.
    """

    names: Mapping[nn.Parameter, str]

    def state_dict(self) -> dict[str, Any]:
        document: dict[str, Any] = super().state_dict()  # type: ignore[misc]
        names = self._ordered_names()
        if names is None:
            return document
        return {
            "state": {names[number]: state for number, state in document["state"].items()},
            "param_groups": [
                {**group, "params": [names[number] for number in group["params"]]}
                for group in document["param_groups"]
            ],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes documents by name; by number those of as many groups, or of a single one that
        has the parameters in the model's order."""
        names = self._ordered_names()
        groups = state_dict["param_groups"]
        if names is None or (len(groups) > 1 and not _is_named(groups)):
            super().load_state_dict(state_dict)  # type: ignore[misc]
            return
        in_order = [number for group in groups for number in group["params"]]
        of_model = in_order if _is_named(groups) else list(self.names.values())
        by_name = {
            plain_name(name): state_dict["state"][number]
            for number, name in zip(in_order, of_model, strict=True)
            if number in state_dict["state"]
        }
        of_group: dict[str, Mapping[str, Any]] = {}
        for group in groups if _is_named(groups) else ():
            kept = {key: group[key] for key in _OF_GROUPS if key in group}
            of_group |= {plain_name(name): kept for name in group["params"]}
        _load(self, names, by_name, of_group)  # type: ignore[arg-type]

    def _ordered_names(self) -> list[str] | None:
        """The names of all groups' parameters; None where some have none."""
        known = getattr(self, "names", {})
        groups: list[dict[str, Any]] = self.param_groups  # type: ignore[attr-defined]
        ordered = [known.get(parameter) for group in groups for parameter in group["params"]]
        return None if None in ordered or not ordered else [name for name in ordered if name]


def name_state(optimizer: Any, model: nn.Module) -> None:
    """Has the optimizer, one of `make_optimizer`, name its parameters as the model does."""
    optimizer.names = {parameter: name for name, parameter in trained(model)}


def settings_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """What the configuration has set for each group."""
    without = ("params", *_OF_GROUPS)
    return [
        {key: value for key, value in group.items() if key not in without}
        for group in optimizer.param_groups
    ]


def state_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state as `<state>/<parameter>`, such as `exp_avg/embedding.weight`."""
    names = {parameter: name for name, parameter in trained(model)}
    tensors = {}
    for group in optimizer.param_groups:
        of_group = {_GROUP + key: group[key] for key in _OF_GROUPS if key in group}
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            for key, value in {**state, **of_group}.items() if state else ():
                tensors[f"{key}/{names[parameter]}"] = _as_tensor(value)
    return tensors


def load_state_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]
) -> None:
    """Puts saved state back; rates, decay and betas stay those of the present config.

    Raises:
        ConfigError: the state is of other parameters.
    """
    names = {parameter: name for name, parameter in trained(model)}
    by_name: dict[str, dict[str, Any]] = {}
    of_group: dict[str, dict[str, Any]] = {}
    for path, tensor in tensors.items():
        key, _, name = path.partition("/")
        if key.startswith(_GROUP):
            of_group.setdefault(name, {})[key.removeprefix(_GROUP)] = _from_tensor(tensor)
        else:
            by_name.setdefault(name, {})[key] = _from_tensor(tensor)
    ordered = [names[p] for group in optimizer.param_groups for p in group["params"]]
    _load(optimizer, ordered, by_name, of_group)


def _load(
    optimizer: torch.optim.Optimizer,
    names: list[str],
    by_name: Mapping[str, Any],
    of_group: Mapping[str, Mapping[str, Any]],
) -> None:
    """`names`: of the parameters in the order of the groups; the others are of those saved."""
    if unknown := sorted(by_name.keys() - set(names)):
        raise ConfigError(f"the saved optimizer has state of unknown {unknown[:3]}")
    numbers = iter(range(len(names)))
    groups = []
    for group in optimizer.param_groups:
        numbered = [next(numbers) for _ in group["params"]]
        kept = of_group.get(names[numbered[0]], {}) if numbered else {}
        groups.append({**group, **kept, "params": numbered})
    state = {number: by_name[name] for number, name in enumerate(names) if name in by_name}
    document = {"state": state, "param_groups": groups}
    plain: Any = super(NamedState, optimizer) if isinstance(optimizer, NamedState) else optimizer
    plain.load_state_dict(document)


def _is_named(groups: list[dict[str, Any]]) -> bool:
    return any(isinstance(number, str) for group in groups for number in group["params"])


def _as_tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else torch.tensor(value, dtype=_NUMBERS[type(value)])


def _from_tensor(tensor: Tensor) -> Any:
    is_number = tensor.dim() == 0 and tensor.dtype in _NUMBERS.values()
    return tensor.item() if is_number else tensor
