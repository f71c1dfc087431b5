"""Brings a program's folder into the run's, as it was planned: every file by its digest.

`code.json` of the run's folder lists the files. What is there already is left alone: the program
has written into its folder since.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, Fields, decode_fields
from trainer_runtime.core.files.regular import open_regular
from trainer_runtime.host.processes.commands import Report

LISTING = "code.json"
_DONE = ".code.complete"
_PIECE_BYTES = 1 << 20


class CodeUnusableError(Exception):
    """The program is not what was planned, or not there; a retry would end the same way."""


def place_code(config: RunConfig, run: Path, report: Report) -> None:
    """Copy the program's folder, unless an earlier attempt has; may be repeated.

    Raises:
        CodeUnusableError: a file is missing or differs, or the folder of the host is not there.
        OSError: it can't be written.
    """
    script = config.script
    if script is None or (run / _DONE).exists():
        return
    if script.source is None:
        if not (run / script.folder).is_dir():
            raise CodeUnusableError(f"the folder {script.folder} is not on this host")
        return
    report(f"code: copying {script.source}")
    source, target = Path(script.source), run / script.folder
    listing = decode_fields((run / LISTING).read_bytes(), LISTING, max_bytes=MAX_DOCUMENT_BYTES)
    target.mkdir(exist_ok=True)
    for row in listing.rows("files", "name", "size_bytes", "sha256", "executable"):
        _copy(source, target, row)
    (run / _DONE).touch()


def _copy(source: Path, target: Path, row: Fields) -> None:
    name, place = row.text("name"), target / row.text("name")
    if os.path.isabs(name) or ".." in Path(name).parts:
        raise CodeUnusableError(f"{LISTING} names {name!r}, which is not inside the folder")
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f".{place.name}.part")
    digest = hashlib.sha256()
    try:
        with open_regular(source / name) as original, part.open("wb") as copy:
            while data := original.read(_PIECE_BYTES):
                digest.update(data)
                copy.write(data)
    except FileNotFoundError:
        raise CodeUnusableError(
            f"{name} is missing: it was there when the run was planned"
        ) from None
    if digest.hexdigest() != row.text("sha256"):
        part.unlink()
        raise CodeUnusableError(f"{name} changed since the run was planned; launch again")
    if row.flag("executable"):
        part.chmod(part.stat().st_mode | 0o100)
    part.replace(place)
