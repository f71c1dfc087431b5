"""Changing a configuration by dotted names, as `--set`, patches and requests do."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from trainer_runtime.core.config import ConfigDocument

# The fields of a resolved configuration that the host may change by itself: those whose annotation
# in the spec says `box`, and what the resolved configuration has beside them.
BOX_FIELDS = frozenset(
    {
        "batch.accumulation",
        "batch.micro_batch",
        "checkpoint.every",
        "checkpoint.every_is_auto",
        "compute.activation_checkpointing",
        "optimizer.grad_clip",
        "optimizer.lr",
        "precision",
    }
)


class PatchError(ValueError):
    """A dotted name that leads nowhere."""


def apply_sets(config: ConfigDocument, sets: Mapping[str, object]) -> dict[str, Any]:
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


def may_apply(
    sets: Mapping[str, object], expected: Mapping[str, object], config: ConfigDocument
) -> bool:
    """Whether the host may make these changes by itself: of its own fields, and not stale."""
    return BOX_FIELDS.issuperset(sets) and all(
        _value_at(config, dotted) == value for dotted, value in expected.items()
    )


def _value_at(config: ConfigDocument, dotted: str) -> Any:
    node: Any = config
    try:
        for part in dotted.split("."):
            node = _step_into(node, part, dotted)
    except PatchError:
        return None
    return node
