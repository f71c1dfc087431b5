"""Writes plain values as block YAML, where no YAML library may be expected."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# What every reader of YAML takes for a text, unquoted; whatever else is quoted as in JSON.
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*\Z")
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


def yaml_text(document: Mapping[str, Any]) -> str:
    """Mappings, sequences, texts, finite numbers, booleans and None, in the given order."""
    return "".join(f"{line}\n" for line in _mapping(document))


def _mapping(values: Mapping[str, Any]) -> Iterator[str]:
    for key, value in values.items():
        yield from _entry(f"{_scalar(key)}:", value)


def _entry(head: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        yield head
        yield from (f"  {line}" for line in _mapping(value))
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        yield head
        yield from (f"  {line}" for item in value for line in _item(item))
    else:
        yield f"{head} {_scalar(value)}"


def _item(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        first, *rest = _mapping(value)
        yield f"- {first}"
        yield from (f"  {line}" for line in rest)
    else:
        yield f"- {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.match(value) and value.lower() not in _WORDS:
        return value
    if isinstance(value, float):
        return _number(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _number(value: float) -> str:
    """With a point: YAML 1.1 takes `1e-05` for a text."""
    text = json.dumps(value, allow_nan=False)
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}e{exponent}" if e else text
