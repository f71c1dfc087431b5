"""JSON by the thousand, parsed and written in a third of the time, by what Pydantic uses.

Its import takes 20 ms, what some thousand texts save: it waits until so many have come, or until
something else has imported it.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from itertools import count
from typing import Any

from trainer_runtime.core.decoding import parse_json

_PAYS_FROM = 4000  # texts
_counted = count()


def parse_json_fast(data: bytes | str) -> object:
    """What `parse_json` gives or raises. Pydantic's parser refuses more (NaN and infinities, half
    surrogates, a byte order mark, 200 levels): such texts are parsed again by the standard library.
    """
    if isinstance(data, str) or (from_json := _function("from_json")) is None:
        return parse_json(data)
    try:
        parsed: object = from_json(data, allow_inf_nan=False)
    except ValueError:
        return parse_json(data)
    return parsed


def dump_json_fast(value: object) -> str:
    """A plain value with keys of strings and integers as JSON that says what `json.dumps` says."""
    if (to_json := _function("to_json")) is None:
        return json.dumps(value)
    try:
        text: str = to_json(value).decode()
    except ValueError:  # half surrogates
        return json.dumps(value)
    return text


def _function(name: str) -> Any:
    """One of pydantic_core; None as long as that is not worth its import."""
    core = sys.modules.get("pydantic_core")
    if core is None and next(_counted) >= _PAYS_FROM:
        core = import_module("pydantic_core")
    return getattr(core, name, None)  # None too while another thread imports it
