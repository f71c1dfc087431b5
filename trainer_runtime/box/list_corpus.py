"""Tells the operator's side what data this machine has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer_runtime.box.prepare import is_whole
from trainer_runtime.core.corpus import look_at


def tell_corpus(paths: Sequence[str], cache: str | None, fingerprint: str | None) -> dict[str, Any]:
    """`listed`: the documents at each path; `cached`: whether the shards of that fingerprint are
    whole in the cache."""
    cached = bool(cache and fingerprint) and is_whole(Path(str(cache), "data", str(fingerprint)))
    return {"listed": [look_at(path).to_dict() for path in paths], "cached": cached}
