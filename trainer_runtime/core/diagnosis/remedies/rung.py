"""A change of a resolved configuration that helps against a failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainer_runtime.core.config import ConfigDocument
from trainer_runtime.core.records import dataclass

Config = ConfigDocument
Changes = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rung:
    """`rule` returns the new values by dotted name, {} where it does not apply.

    `codes` are the log findings that it is proposed for; empty where only findings of series
    propose it. `frameworks` are those whose config.json has its fields.
    """

    id: str
    codes: frozenset[str]
    frameworks: frozenset[str]
    why: str
    rule: Callable[[Config], Changes]

    def changes(self, config: Config) -> Changes:
        """Its changes of `config`; {} for a configuration of another framework."""
        return self.rule(config) if config.get("framework") in self.frameworks else {}


def value_at(config: Config, path: str) -> Any:
    """The value at a dotted name, None where there is none."""
    node: Any = config
    for part in path.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    return node
