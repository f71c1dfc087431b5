"""Reports to the client which models and tokenizers this machine has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from trainer_runtime.core.files.model_folder import read_model_folder
from trainer_runtime.core.files.tokenizer_folder import read_tokenizer_folder


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
