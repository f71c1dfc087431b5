"""Reports to the client which data this machine has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import Fields, decode_value
from trainer_runtime.core.files.corpus import AskedSource
from trainer_runtime.core.inputs.source_check import check_source
from trainer_runtime.host.prepare.shards import is_whole


def list_corpus(asked: str, cache: str | None, fingerprint: str | None) -> dict[str, Any]:
    """`listed`: the documents of each `AskedSource` in the JSON `asked`; `cached`: whether the
    shards of that fingerprint are whole in the cache."""
    cached = bool(cache and fingerprint) and is_whole(Path(str(cache), "data", str(fingerprint)))
    rows = Fields({"asked": decode_value(asked, "the request")}).sections("asked")
    listed = [check_source(AskedSource.of(row)).to_dict() for row in rows]
    return {"listed": listed, "cached": cached}
