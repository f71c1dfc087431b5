"""The choices that a run's train.py is rendered by.

A choice is decided by fields of the spec that nobody may change after the launch, and takes one of
a closed list of values. The client renders by the choices of a config; the script hands its own to
`run`, which refuses a config that asks for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from types import MappingProxyType

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.frameworks import litgpt
from trainer_runtime.core.records import dataclass

Choices = Mapping[str, str]


class UnknownChoiceError(ValueError):
    """A config asks for a script without a template."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One name in a template. `fields` are those of the spec that decide it, `read` takes it from a
    resolved config."""

    name: str
    values: tuple[str, ...]
    fields: tuple[str, ...]
    read: Callable[[RunConfig], object]

    def of(self, config: RunConfig) -> str:
        """Raises: UnknownChoiceError: the config has none of the values."""
        found = self.read(config)
        if found not in self.values:
            known = ", ".join(self.values)
            raise UnknownChoiceError(f"{self.name} {found!r} is none of {known}")
        return str(found)


def choices_of(config: RunConfig) -> dict[str, str]:
    """The choices of a config's framework, by name.

    Raises:
        UnknownChoiceError: no template exists for such a config.
    """
    framework = config.framework
    if framework not in CHOICES:
        raise UnknownChoiceError(f"framework {framework!r} is none of {', '.join(CHOICES)}")
    return {choice.name: choice.of(config) for choice in CHOICES[framework]}


def every_choice(framework: str) -> Iterator[dict[str, str]]:
    """All the choices that a framework's template can be rendered by."""
    choices = CHOICES[framework]
    names = [choice.name for choice in choices]
    for values in product(*(choice.values for choice in choices)):
        yield dict(zip(names, values, strict=True))


def _style(config: RunConfig) -> object:
    return config.model.style


def _weights(config: RunConfig) -> object:
    return "existing" if config.model.has_weights else "new"


def _method(config: RunConfig) -> object:
    return config.method


def _tuning(config: RunConfig) -> object:
    return config.adapter.kind if config.adapter else "full"


CHOICES: Mapping[str, tuple[Choice, ...]] = MappingProxyType(
    {
        "nanogpt": (Choice("style", ("gpt2", "llama"), ("model.style",), _style),),
        "litgpt": (
            Choice(
                "command",
                (litgpt.PRETRAIN, litgpt.FINETUNE, litgpt.FINETUNE_LORA),
                ("method", "adapter"),
                litgpt.command,
            ),
        ),
        "hf": (Choice("weights", ("new", "existing"), ("model.path", "model.hub"), _weights),),
        "trl": (
            Choice("method", ("sft", "dpo", "kto", "reward", "grpo"), ("method",), _method),
            Choice("tuning", ("full", "lora"), ("adapter", "adapter.kind"), _tuning),
        ),
        "script": (),
    }
)
