"""The frameworks, a record each: everything that a host does differently for one of them.

A name here has a module here with the record as `FRAMEWORK`, and one in `plan.frameworks` of the
client. docs/extending.md shows how to add one.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Literal, get_args

from trainer_runtime.core.frameworks.framework import Framework

FrameworkName = Literal["nanogpt", "litgpt", "hf", "trl", "script"]

FRAMEWORKS: Mapping[str, Framework] = MappingProxyType(
    {name: import_module(f"{__name__}.{name}").FRAMEWORK for name in get_args(FrameworkName)}
)
_PROGRAM = FRAMEWORKS["script"]


def framework_of(name: object) -> Framework:
    """The record of a config's `framework`; of an attached training that of a program."""
    return FRAMEWORKS.get(str(name), _PROGRAM)
