"""The architectures of transformers, by the fields of their configurations.

The data is generated from the installed transformers (`scripts/make_architectures.py`). What it
doesn't hold, a host's own transformers refuses before the training starts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from trainer_runtime.core.config.objectives import CAUSAL, OBJECTIVES

DATA = Path(__file__).with_suffix(".json")
# Those that the records of other objectives than causal name.
OBJECTIVE_DATA = DATA.with_name("objective_architectures.json")
# By what a size is called among the architectures.
WIDTH = frozenset({"hidden_size", "n_embd", "d_model"})
LAYERS = frozenset({"num_hidden_layers", "n_layer", "n_layers", "num_layers"})
HEADS = frozenset({"num_attention_heads", "n_head", "n_heads"})
FEED_FORWARD = frozenset({"intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff"})
KEY_HEADS = frozenset({"num_key_value_heads", "num_kv_heads"})
POSITIONS = frozenset({"max_position_embeddings", "n_positions", "max_seq_len"})


@cache
def fields_by_architecture(objective: str = CAUSAL) -> Mapping[str, Mapping[str, Any]]:
    """The fields of the configuration of each of an objective's architectures, with their
    defaults."""
    if objective == CAUSAL:
        read: dict[str, dict[str, Any]] = json.loads(DATA.read_text())
        return read
    others = json.loads(OBJECTIVE_DATA.read_text())
    return {arch: others[arch] for arch in OBJECTIVES[objective].architectures}


def objective_of(arch: str) -> str | None:
    """The objective by which an architecture is trained; None where it is not known."""
    return next((name for name in OBJECTIVES if arch in fields_by_architecture(name)), None)


def field_named(names: frozenset[str], fields: Mapping[str, Any]) -> str | None:
    """How an architecture with these fields calls a size; None where it has none."""
    return next((name for name in fields if name in names), None)


def whole_config(arch: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the architecture's defaults; as many key heads as heads, unless the
    spec says otherwise."""
    fields = fields_by_architecture(objective_of(arch) or CAUSAL)[arch]
    whole = {**fields, **config}
    keys, heads = field_named(KEY_HEADS, fields), field_named(HEADS, fields)
    if keys is not None and heads is not None and config.get(keys) is None:
        whole[keys] = whole[heads]
    return whole
