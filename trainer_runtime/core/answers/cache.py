"""The answer of `gc`: what was removed from a host's cache."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.decoding import JsonRecord, SparseRecord


@dataclass(frozen=True, slots=True)
class CacheItem(SparseRecord):
    """An entry of the cache; `reason` says why it was kept."""

    kind: str
    name: str
    size_bytes: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class CacheAnswer(JsonRecord):
    removed: tuple[CacheItem, ...]
    kept: tuple[CacheItem, ...]
