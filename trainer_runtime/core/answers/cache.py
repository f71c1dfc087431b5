"""The answer of `gc`: what was removed from a host's cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.decoding import JsonRecord


@dataclass(frozen=True, slots=True)
class CacheItem(JsonRecord):
    """An entry of the cache; `reason` says why it was kept."""

    kind: str
    name: str
    size_bytes: int
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        item = {"kind": self.kind, "name": self.name, "size_bytes": self.size_bytes}
        return item if self.reason is None else {**item, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class CacheAnswer(JsonRecord):
    removed: tuple[CacheItem, ...]
    kept: tuple[CacheItem, ...]
