"""Writes which causal architectures the installed transformers has, and the fields of their
configurations with their defaults: what `model.arch` and `model.config` are checked by."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from trainer_runtime.core.config.objectives import OBJECTIVES
from trainmaster.plan.decisions.trainable_models import is_encoder
from trainmaster.plan.transformers_architectures import DATA, LAYERS, OBJECTIVE_DATA, WIDTH

# Of the objects around a configuration, and what a configuration of text can't say.
_OPTIONAL = re.compile(r'getattr\(config, "([a-z]\w*)"')
_NOT_FIELDS = {"self", "kwargs", "args"}
_DECIDED = {
    *("is_decoder", "is_encoder_decoder", "add_cross_attention", "decoder_start_token_id"),
    *("cls_token_id", "sep_token_id", "tokenizer_class", "reference_compile"),
}


def architectures() -> dict[str, dict[str, Any]]:
    """By name, the fields of those that predict the next token of a text."""
    fields_by_name = {name: _fields(name) for name in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)}
    return {
        name: fields
        for name, fields in fields_by_name.items()
        if "vocab_size" in fields
        and WIDTH & fields.keys()
        and LAYERS & fields.keys()
        and not is_encoder(name)
    }


def objective_architectures() -> dict[str, dict[str, Any]]:
    """Those that fill masks or restore spans; fields that their objective decides are left out."""
    names = sorted(name for record in OBJECTIVES.values() for name in record.architectures)
    return {
        name: {key: of for key, of in _fields_of(name).items() if key not in _DECIDED}
        for name in names
    }


def _fields(name: str) -> dict[str, Any]:
    kind = CONFIG_MAPPING[name]
    parameters = inspect.signature(kind.__init__).parameters
    if kind.sub_configs or getattr(kind, "is_encoder_decoder", False):
        return {}
    if "encoder_layers" in parameters or "decoder_layers" in parameters:
        return {}
    return _fields_of(name)


def _fields_of(name: str) -> dict[str, Any]:
    kind = CONFIG_MAPPING[name]
    parameters = inspect.signature(kind.__init__).parameters
    fields = {key: of.default for key, of in parameters.items() if key not in _NOT_FIELDS}
    optional = dict.fromkeys(_read_if_there(Path(inspect.getfile(kind)).parent))
    return {key: _plain(value) for key, value in {**optional, **fields}.items()}


def _read_if_there(folder: Path) -> list[str]:
    """Fields that the class doesn't name and its model reads, such as `head_dim` of qwen3_moe."""
    sources = [file.read_text() for file in sorted(folder.glob("modeling_*.py"))]
    return sorted({name for source in sources for name in _OPTIONAL.findall(source)})


def _plain(value: Any) -> Any:
    """A default as JSON; null where it is none that JSON has."""
    if isinstance(value, tuple):
        value = list(value)
    try:
        return json.loads(json.dumps(value))
    except TypeError:
        return None


def text(architectures: Mapping[str, Mapping[str, Any]]) -> str:
    """A file's text: a line per architecture."""
    lines = [f"{json.dumps(name)}: {json.dumps(of)}" for name, of in architectures.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    Path(DATA).write_text(text(architectures()))
    Path(OBJECTIVE_DATA).write_text(text(objective_architectures()))
