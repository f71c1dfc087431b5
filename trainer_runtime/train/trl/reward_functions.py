"""The reward functions of a run, from its own file."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_runtime.train.attempt.config import ConfigError

if TYPE_CHECKING:
    from trl.trainer.grpo_trainer import RewardFunc

REWARD_NAME = "reward.py"


def reward_functions(path: Path) -> list[RewardFunc]:
    """The functions of the file whose names begin with `reward` and that take completions.

    In the file's order; planning finds the same ones (`plan/spec/attached.py`) without
    running the file.

    Raises:
        ConfigError: the file is missing, can't be imported, or has no such function.
    """
    if not path.is_file():
        raise ConfigError(f"{path.name} is missing: give it in method_args.reward_file")
    described = importlib.util.spec_from_file_location(path.stem, path)
    assert described is not None and described.loader is not None
    module = importlib.util.module_from_spec(described)
    try:
        described.loader.exec_module(module)
    except Exception as error:  # whatever a person's file may raise
        raise ConfigError(f"{path.name} can't be imported: {error!r}") from error
    functions = [
        function for name, function in inspect.getmembers(module) if _is_reward(module, name)
    ]
    if not functions:
        raise ConfigError(
            f"{path.name} has no reward function: define "
            "`def reward(completions, **kwargs)` that returns a number for each completion"
        )
    return sorted(functions, key=lambda function: function.__code__.co_firstlineno)


def _is_reward(module: Any, name: str) -> bool:
    member = getattr(module, name)
    if not (name.startswith("reward") and inspect.isfunction(member)):
        return False
    parameters = inspect.signature(member).parameters
    takes_others = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return member.__module__ == module.__name__ and "completions" in parameters and takes_others
