"""What a host knows of a framework: one record each, in the module of its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from trainer_runtime.core.config import RunConfig

# Where frameworks write, as seen from the run's folder: on the disk of the checkpoints, so that a
# finished one is only renamed. What a killed process left here is removed at the next start.
WRITING = "checkpoints/.writing-by-framework"


class UnknownChoiceError(ValueError):
    """A config asks for a script without a template."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One name in a template, with its values. `fields`: those of the spec that decide it, which
    never change after the launch; `read` takes it from a resolved config. The script hands its own
    to `run`, which refuses a config that asks for others."""

    name: str
    values: tuple[str, ...]
    fields: tuple[str, ...]
    read: Callable[[RunConfig], object]

    def of(self, config: RunConfig) -> str:
        """Raises: UnknownChoiceError: the config has none of the values."""
        value = self.read(config)
        if value not in self.values:
            raise UnknownChoiceError(f"{self.name} {value!r} is none of {', '.join(self.values)}")
        return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """One framework, or the programs that are run as they are.

    `files`: its own files beside config.json, as texts by name. `choices`: those that its template
    is rendered by. `launcher`: what starts the ranks of one machine. `modules`: by package of its
    own, the module whose import proves that it works.

    Its checkpoints: `output` is their kind, which frameworks may have in common, and `text_model`
    the package of `train` whose module of this name opens them to write texts.
    `weights`: whose names its safetensors have, None where it writes none or in another format.
    `gathers_whole_state`: rank 0 writes all of it, however the model is sharded.
    `has_chat_template`: of the tokenizers of its models.

    `is_patched`: remedies may change its config. `rungs`: those of the ladder that are not for
    every framework (`diagnosis.remedies.ladder`). `rows`: by method, where it reads other rows than
    is usual for the method (`inputs.row_form`). `pretrains`: it does so unless another method is
    named.
    """

    name: str
    output: str
    text_model: str = "hf"
    weights: Literal["ours", "transformers"] | None = None
    files: Callable[[RunConfig], dict[str, str]] = lambda _: {}
    choices: tuple[Choice, ...] = ()
    launcher: Literal["python", "accelerate", "torchrun"] = "accelerate"
    modules: Mapping[str, str] = field(default_factory=dict)
    gathers_whole_state: bool = False
    has_chat_template: bool = True
    is_patched: bool = True
    rungs: frozenset[str] = frozenset()
    rows: Mapping[str, str] = field(default_factory=dict)
    pretrains: bool = True
