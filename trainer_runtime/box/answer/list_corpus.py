"""Tells the operator's side what data this machine has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer_runtime.box.prepare.shards import is_whole
from trainer_runtime.core.files.corpus import AskedSource
from trainer_runtime.core.inputs.rows_check import look_at_source


def tell_corpus(
    asked: Sequence[Sequence[str]], cache: str | None, fingerprint: str | None
) -> dict[str, Any]:
    """`listed`: the documents of each `AskedSource`; `cached`: whether the shards of that
    fingerprint are whole in the cache."""
    cached = bool(cache and fingerprint) and is_whole(Path(str(cache), "data", str(fingerprint)))
    listed = [look_at_source(AskedSource(*one)).to_dict() for one in asked]
    return {"listed": listed, "cached": cached}
