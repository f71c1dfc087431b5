"""Records which roots' runs share a cache: emptying it has to check all of them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from trainer_runtime.core.files.durable import write_atomic

_FOLDER = "roots"


def register(cache: Path, runs: Path) -> None:
    """Note that the runs in this folder use the cache; may be repeated, by several at once.

    Raises:
        OSError: the cache can't be written.
    """
    path = os.fsencode(runs.resolve())
    note = cache / _FOLDER / hashlib.sha256(path).hexdigest()[:16]
    if not note.exists():
        note.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(note, path)


def registered(cache: Path) -> list[Path]:
    """The folders of runs that were noted, whether they are there now or not.

    Raises:
        OSError: a note can't be read.
    """
    try:
        notes = sorted((cache / _FOLDER).iterdir())
    except FileNotFoundError:
        return []
    return [Path(os.fsdecode(note.read_bytes())) for note in notes if note.name[0] != "."]
