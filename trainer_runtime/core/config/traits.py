"""What the host's side does differently for a framework, as data: a row each.

Its files and command line are in `core.frameworks`, its loop in `train`. A program that is run as
it is has no row: its config is its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from trainer_runtime.core.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """`output`: the kind of its checkpoints, which frameworks may have in common. `launcher`: who
    starts the ranks of one machine. `gathers_whole_state`: rank 0 writes all of it, however the
    model is shared out. `rungs`: those of the ladder that are not for every framework
    (`diagnosis.remedies.ladder`). `rows`: by method, where it reads other rows than the method's
    usual (`inputs.row_form`). `has_chat_template`: of the tokenizers of its models."""

    output: str
    launcher: Literal["accelerate", "torchrun"] = "accelerate"
    gathers_whole_state: bool = False
    rungs: frozenset[str] = frozenset()
    rows: Mapping[str, str] = MappingProxyType({})
    has_chat_template: bool = True


_OF_TRAINER = frozenset({"activation_checkpointing", "next_zero_stage"})

TRAITS: Mapping[str, Traits] = MappingProxyType(
    {
        "nanogpt": Traits(output="nanogpt", has_chat_template=False),
        "litgpt": Traits(
            output="litgpt",
            launcher="torchrun",
            gathers_whole_state=True,
            rungs=frozenset({"activation_checkpointing", "quantize_base", "part_over_ranks"}),
            rows=MappingProxyType({"sft": "litgpt sft"}),
            has_chat_template=False,
        ),
        "hf": Traits(output="hf", rungs=_OF_TRAINER),
        "trl": Traits(output="hf", rungs=_OF_TRAINER | {"quantize_base", "raise_beta"}),
    }
)
