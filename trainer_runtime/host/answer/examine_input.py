"""Reports to the client which data, models and tokenizers this machine has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import Fields, decode_value
from trainer_runtime.core.files.corpus import AskedSource
from trainer_runtime.core.files.model_folder import read_model_folder
from trainer_runtime.core.files.tokenizer_folder import read_tokenizer_folder
from trainer_runtime.core.inputs.source_check import check_source
from trainer_runtime.host.prepare.shards import is_whole


def examine_input(kind: str, name: str, revision: str | None) -> dict[str, Any]:
    """A model's or tokenizer's folder; of a hub's name (`cached`) the folder in this user's cache
    of the hub, `path` None where it holds none."""
    if kind == "model":
        return read_model_folder(name).to_dict()
    if kind == "tokenizer":
        return read_tokenizer_folder(name).to_dict()
    return {"path": _cached(name, revision or "main")}


def _cached(name: str, revision: str) -> str | None:
    """Where huggingface_hub keeps a revision, by its documented layout of the cache."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface").expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    kept = hub / f"models--{name.replace('/', '--')}"
    try:
        commit = (kept / "refs" / revision).read_text().strip()
    except OSError:
        commit = revision
    folder = kept / "snapshots" / commit
    return str(folder) if folder.is_dir() else None


def list_corpus(asked: str, cache: str | None, fingerprint: str | None) -> dict[str, Any]:
    """`listed`: the documents of each `AskedSource` in the JSON `asked`; `cached`: whether the
    shards of that fingerprint are whole in the cache."""
    cached = bool(cache and fingerprint) and is_whole(Path(str(cache), "data", str(fingerprint)))
    rows = Fields({"asked": decode_value(asked, "the request")}).sections("asked")
    listed = [check_source(AskedSource.of(row)).to_dict() for row in rows]
    return {"listed": listed, "cached": cached}
