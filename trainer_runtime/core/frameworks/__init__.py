"""The frameworks, a record each: everything that a host does differently for one of them.

A name here has a module here with the record as `FRAMEWORK`, and one in `plan.frameworks` of the
client. docs/extending.md shows how to add one.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Literal, get_args

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.frameworks.framework import Framework, UnknownChoiceError

FrameworkName = Literal["nanogpt", "litgpt", "hf", "trl", "script"]

FRAMEWORKS: Mapping[str, Framework] = MappingProxyType(
    {name: import_module(f"{__name__}.{name}").FRAMEWORK for name in get_args(FrameworkName)}
)
_PROGRAM = FRAMEWORKS["script"]


def framework_of(name: object) -> Framework:
    """The record of a config's `framework`; of an attached training that of a program."""
    return FRAMEWORKS.get(str(name), _PROGRAM)


def choices_of(config: RunConfig) -> dict[str, str]:
    """What a config's train.py is rendered by, by the choices' names.

    Raises:
        UnknownChoiceError: no template exists for such a config.
    """
    framework = FRAMEWORKS.get(config.framework)
    if framework is None:
        names = ", ".join(FRAMEWORKS)
        raise UnknownChoiceError(f"framework {config.framework!r} is none of {names}")
    return {choice.name: choice.of(config) for choice in framework.choices}
