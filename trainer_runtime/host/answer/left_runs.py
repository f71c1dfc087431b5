"""`python3 -m trainer_runtime left-runs`: runs of a host that its client does not know, or knows
only an older request of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, decode_fields
from trainer_runtime.core.files.durable import is_locked
from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import RunFolder

# The maximum of folders read, and of those described: the answer stays below 64 MiB.
_READ, _DESCRIBED = 10_000, 32


def left_runs(request: str) -> dict[str, Any]:
    """Of `{"runs": folder, "known": {run: generation}}`, the folders of other runs and of newer
    requests, each with its request, its record and its configuration; `more`: whether there are
    further ones.

    Raises:
        DecodingError: something else was asked.
    """
    fields = decode_fields(request, "a request", max_bytes=MAX_DOCUMENT_BYTES)
    generations = fields.section("known")
    newest = {run: generations.integer(run) for run in generations.values}
    left: list[dict[str, Any]] = []
    for folder in _folders(Path(fields.text("runs"))):
        described = _described(RunFolder(folder), newest.get(folder.name))
        if described is None:
            continue
        if len(left) == _DESCRIBED:
            return {"runs": left, "more": True}
        left.append(described)
    return {"runs": left, "more": False}


def _folders(runs: Path) -> Iterator[Path]:
    try:
        with os.scandir(runs) as entries:
            for count, entry in enumerate(entries):
                if count >= _READ:
                    return
                if entry.is_dir(follow_symlinks=False):
                    yield Path(entry.path)
    except FileNotFoundError:
        return


def _described(run: RunFolder, newest: int | None) -> dict[str, Any] | None:
    """None for what is not a run, and for a run whose request the client knows."""
    desired = read_json(run.desired)
    generation = None if desired is None else desired.get("generation")
    if not isinstance(generation, int) or (newest is not None and generation <= newest):
        return None
    described: dict[str, Any] = {"run_id": run.root.name, "folder": str(run.root)}
    described |= {"desired": desired, "supervised": _is_supervised(run)}
    if newest is None:
        described |= {"record": read_json(run.record), "config": read_json(run.config)}
    return described


def _is_supervised(run: RunFolder) -> bool:
    try:
        return is_locked(run.supervisor_lock)
    except OSError:
        return False
