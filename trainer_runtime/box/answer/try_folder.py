"""Tries whether a folder that something is to be copied into later can be written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

_TRIED_BYTES = 4096


def try_folder(folder: Path) -> dict[str, Any]:
    """`problem`: why nothing can be written there, None where it can; nothing is left behind.

    One that is not there yet is tried in the nearest folder above that is.
    """
    existing = folder.absolute()
    while not os.path.lexists(existing):
        existing = existing.parent
    try:
        with (
            tempfile.TemporaryDirectory(prefix=".trainmaster-", dir=existing) as made,
            Path(made, "tried").open("wb") as file,
        ):
            file.write(b"\0" * _TRIED_BYTES)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return {"problem": f"{existing} can't be written: {error.strerror}"}
    return {"problem": None}
