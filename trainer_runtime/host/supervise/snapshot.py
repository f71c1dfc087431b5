"""Keeps what a supervisor has folded, so that the next one reads only what came later.

Derived from the run's files and never needed: one that is damaged, of another version, or does not
fit to the files is ignored, and everything is read from its beginning.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trainer_runtime
from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES
from trainer_runtime.core.files.regular import read_regular
from trainer_runtime.core.protocol.followed_files import TAIL_BYTES
from trainer_runtime.core.protocol.lines import ODD_FIELDS
from trainer_runtime.host.files.compacted import read_at
from trainer_runtime.host.files.layout import RunFolder

# Changes whenever the folded state means something else.
_FORMAT = f"1 of {trainer_runtime.__version__}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Folded state by part, as JSON values, and how many bytes of each file are in it.

    `offsets`: by the file's name in the run's folder.
    """

    parts: Mapping[str, Any] = field(default_factory=dict)
    offsets: Mapping[str, int] = field(default_factory=dict)


def read_snapshot(run: RunFolder) -> Snapshot | None:
    """The newest snapshot that fits to the run's files, of the two that are kept; None for none."""
    return _read(run, run.snapshot) or _read(run, run.older_snapshot)


def write_snapshot(run: RunFolder, snapshot: Snapshot) -> None:
    """Replace the snapshot and keep the one before.

    Numbers that are not finite are written by name, as Python reads them: a validation loss that is
    infinite may stay the newest for days. Not fsynced: where a power cut tears the newest, the one
    before has long been on the disk.

    Raises:
        OSError: it can't be written.
    """
    files = {name: [at, _tail(run.root / name, at)] for name, at in snapshot.offsets.items()}
    body = {"format": _FORMAT, "files": files, "parts": snapshot.parts}
    text = json.dumps(body, separators=(",", ":"))
    temporary = run.snapshot.with_name(f".{run.snapshot.name}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    with suppress(FileNotFoundError):
        os.replace(run.snapshot, run.older_snapshot)
    os.replace(temporary, run.snapshot)


def _read(run: RunFolder, path: Path) -> Snapshot | None:
    try:
        data = read_regular(path, MAX_DOCUMENT_BYTES)
        body = json.loads(data)
        if not isinstance(body, dict) or body.get("format") != _FORMAT:
            return None
        ends = body["files"]
        if all(_tail(run.root / name, offset) == tail for name, (offset, tail) in ends.items()):
            return Snapshot(body["parts"], {name: offset for name, (offset, _) in ends.items()})
    except (OSError, RecursionError, *ODD_FIELDS):
        pass
    return None


def _tail(path: Path, offset: int) -> str | None:
    """The bytes before `offset`, by which a file is recognised; None where it has fewer."""
    if offset == 0:
        return ""
    begin = max(0, offset - TAIL_BYTES)
    try:
        with path.open("rb") as file:
            tail = read_at(file.fileno(), str(path), begin, offset - begin)
    except FileNotFoundError:
        return None
    return tail.decode("latin-1") if len(tail) == offset - begin else None
