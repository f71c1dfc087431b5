"""Changing a configuration by dotted names, as `--set`, patches and requests do."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any


class PatchError(ValueError):
    """A dotted name that leads nowhere."""


def apply_sets(config: Mapping[str, Any], sets: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `config` with each dotted name set to its value.

    A part that meets a list names the item whose `name` it is: `data.sources.main.weight`.

    Raises:
        PatchError: a part before the last does not exist, or the last one doesn't.
    """
    changed = copy.deepcopy(dict(config))
    for dotted, value in sets.items():
        *parents, last = dotted.split(".")
        node: Any = changed
        for part in parents:
            node = _step_into(node, part, dotted)
        if not isinstance(node, dict) or last not in node:
            raise PatchError(f"`{dotted}`: there is no `{last}`")
        node[last] = copy.deepcopy(value)
    return changed


def _step_into(node: Any, part: str, dotted: str) -> Any:
    if isinstance(node, dict) and part in node:
        return node[part]
    if isinstance(node, list):
        for item in node:
            if isinstance(item, dict) and item.get("name") == part:
                return item
    raise PatchError(f"`{dotted}`: there is no `{part}`")
