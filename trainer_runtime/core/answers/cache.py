"""The answer of `gc`: what was removed from a host's cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.decoding import Fields


@dataclass(frozen=True, slots=True)
class CacheItem:
    """An entry of the cache; `reason` says why it was kept."""

    kind: str
    name: str
    size_bytes: int
    reason: str | None = None

    @classmethod
    def of(cls, fields: Fields) -> CacheItem:
        return cls(
            kind=fields.text("kind"),
            name=fields.text("name"),
            size_bytes=fields.integer("size_bytes"),
            reason=fields.find_text("reason"),
        )

    def to_dict(self) -> dict[str, Any]:
        item = {"kind": self.kind, "name": self.name, "size_bytes": self.size_bytes}
        return item if self.reason is None else {**item, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class CacheAnswer:
    removed: tuple[CacheItem, ...]
    kept: tuple[CacheItem, ...]

    @classmethod
    def of(cls, fields: Fields) -> CacheAnswer:
        return cls(
            removed=tuple(map(CacheItem.of, fields.sections("removed"))),
            kept=tuple(map(CacheItem.of, fields.sections("kept"))),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "removed": [item.to_dict() for item in self.removed],
            "kept": [item.to_dict() for item in self.kept],
        }
