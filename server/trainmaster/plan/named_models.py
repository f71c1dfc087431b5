"""Published models by name: their shapes, and which framework builds which.

The data is `named_models.json`: families of records in our own words. `config` holds what a
family's configuration in transformers says beyond them. Parameters are the published ones, tied
matrices once; the tests hold our own count against them.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from trainer_runtime.core.config.model import ROPE_BASE
from trainmaster.plan.transformers_architectures import (
    FEED_FORWARD,
    HEADS,
    KEY_HEADS,
    LAYERS,
    WIDTH,
    field_named,
    fields_by_architecture,
)

_DATA = Path(__file__).with_suffix(".json")
# What names of the same shape differ by: how the weights were tuned or stored.
_VARIANT = re.compile(r"-(?:hf|instruct|chat|base|it|pt|deduped|tuned)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """A published shape. `arch`: of transformers. `context`: the most positions of its weights,
    `seq_len` those that most of its own pre-training had. `hub`: its names there, `litgpt`:
    LitGPT's. `source`: of the sizes.
    """

    name: str
    family: str
    arch: str
    source: str
    parameters: int
    context: int
    seq_len: int
    n_layer: int
    n_head: int
    n_kv_head: int
    d_model: int
    d_ff: int
    vocab_size: int
    d_head: int | None = None
    tied: bool = False
    rope_base: float = ROPE_BASE
    hub: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    litgpt: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_gpt2(self) -> bool:
        """Whether every framework makes it of sizes: they have a gpt2 of their own."""
        return self.arch == "gpt2"

    @property
    def is_plain_llama(self) -> bool:
        """Whether it is made of nothing but what the style llama of our own scripts has."""
        is_plain = not self.tied and self.d_head is None and not self.config
        return self.arch in ("llama", "mistral") and is_plain

    def in_words_of_transformers(self) -> dict[str, Any]:
        """The sizes as fields of `arch`'s configuration, without vocabulary and positions."""
        fields = fields_by_architecture()[self.arch]
        sizes = (
            (WIDTH, self.d_model),
            (LAYERS, self.n_layer),
            (HEADS, self.n_head),
            (KEY_HEADS, self.n_kv_head),
            (FEED_FORWARD, self.d_ff),
        )
        named = {name: size for names, size in sizes if (name := field_named(names, fields))}
        head = {} if self.d_head is None else {"head_dim": self.d_head}
        return {**named, **head, "tie_word_embeddings": self.tied, **self.config}


@cache
def named_models() -> tuple[NamedModel, ...]:
    """All of them, family by family."""
    return tuple(_records())


def find_model(name: str) -> NamedModel | None:
    """The model of a name: ours, an alias, the hub's with or without its owner, or LitGPT's.

    Tuned variants (`-Instruct`) have the shape of their base.
    """
    return _by_name().get(_plain(name))


def nearest_models(name: str, count: int = 3) -> list[str]:
    """The names most like an unknown one."""
    close = difflib.get_close_matches(_plain(name), [*_by_name()], n=2 * count, cutoff=0.5)
    return [*dict.fromkeys(_by_name()[match].name for match in close)][:count]


@cache
def litgpt_names() -> frozenset[str]:
    """Models that LitGPT has by name, whose sizes are not in the table."""
    return frozenset(_document()["without_sizes"])


def _records() -> Iterator[NamedModel]:
    for family in _document()["families"]:
        shared = {name: value for name, value in family.items() if name != "models"}
        for own in family["models"]:
            record = {**shared, **own}
            names = {key: tuple(record.get(key, ())) for key in ("hub", "aliases")}
            yield NamedModel(**{**record, **names})


@cache
def _document() -> Mapping[str, Any]:
    read: dict[str, Any] = json.loads(_DATA.read_text())
    return read


@cache
def _by_name() -> Mapping[str, NamedModel]:
    return {
        _plain(name): model
        for model in named_models()
        for name in (*model.aliases, *model.hub, *filter(None, (model.litgpt,)), model.name)
    }


def _plain(name: str) -> str:
    plain = re.sub(r"[\s_]+", "-", name.rpartition("/")[2].strip().lower())
    while (stripped := _VARIANT.sub("", plain)) != plain:
        plain = stripped
    return plain
