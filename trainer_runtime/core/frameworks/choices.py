"""The choices that a run's train.py is rendered by.

A choice is decided by fields of the spec that nobody may change after the launch, and takes one of
a closed list of values. The client renders by the choices of a config; the script hands its own to
`run`, which refuses a config that asks for others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.frameworks import FRAMEWORKS
from trainer_runtime.core.frameworks.framework import UnknownChoiceError

Choices = Mapping[str, str]


def choices_of(config: RunConfig) -> dict[str, str]:
    """The choices of a config's framework, by name.

    Raises:
        UnknownChoiceError: no template exists for such a config.
    """
    framework = FRAMEWORKS.get(config.framework)
    if framework is None:
        names = ", ".join(FRAMEWORKS)
        raise UnknownChoiceError(f"framework {config.framework!r} is none of {names}")
    return {choice.name: choice.of(config) for choice in framework.choices}


def every_choice(framework: str) -> Iterator[dict[str, str]]:
    """All the choices that a framework's template can be rendered by."""
    choices = FRAMEWORKS[framework].choices
    names = [choice.name for choice in choices]
    for values in product(*(choice.values for choice in choices)):
        yield dict(zip(names, values, strict=True))
