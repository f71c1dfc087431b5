"""`python3 -m trainer_runtime supervised`: which runs have a supervisor, many at a time."""

from __future__ import annotations

from pathlib import Path

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, decode_fields
from trainer_runtime.core.files.durable import is_locked
from trainer_runtime.host.files.layout import RunFolder


def supervised(asked: str) -> dict[str, list[int]]:
    """The places, in `{"folders": [paths]}`, of the run folders whose supervisor lives.

    Raises:
        DecodingError: something else was asked.
    """
    fields = decode_fields(asked, "a request", max_bytes=MAX_DOCUMENT_BYTES)
    return {"supervised": [at for at, folder in enumerate(fields.texts("folders")) if _is(folder)]}


def _is(folder: str) -> bool:
    try:
        return is_locked(RunFolder(Path(folder)).supervisor_lock)
    except OSError:  # `start` finds out what is wrong with it
        return False
