"""A change of a resolved configuration that helps against a failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainer_runtime.core.config import ConfigDocument
from trainer_runtime.core.frameworks import framework_of
from trainer_runtime.core.records import dataclass

Config = ConfigDocument
Changes = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rung:
    """`rule` returns the new values by dotted name, {} where it does not apply.

    `codes` are the log findings that it is proposed for; empty where only findings of series
    propose it. `is_special`: for the frameworks alone whose records name it.
    """

    id: str
    codes: frozenset[str]
    why: str
    rule: Callable[[Config], Changes]
    is_special: bool = False

    def changes(self, config: Config) -> Changes:
        """Its changes of `config`; {} for one of a framework that it is not for."""
        framework = framework_of(config.get("framework"))
        if not framework.is_patched or (self.is_special and self.id not in framework.rungs):
            return {}
        return self.rule(config)


def value_at(config: Config, path: str) -> Any:
    """The value at a dotted name, None where there is none."""
    node: Any = config
    for part in path.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    return node
