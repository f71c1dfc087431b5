"""Download a file of a kernel's output. Runs in the worker process."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from trainmaster.backends.kaggle.error_mapping import RefusedError

_CHUNK_BYTES = 1 << 20
_WAIT_S = (15.0, 90.0)
_TRIES = 4
# Left free on the disk, for the databases and the mirror.
_RESERVE_BYTES = 256 << 20


def fetch_blob(address: str, path: Path) -> None:
    """Download to `path`, which is replaced at the end; a broken download is resumed.

    Raises:
        RefusedError: it is longer than announced, or than the disk has room for.
        requests.RequestException: it failed, or broke too often.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        _fill(address, part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _fill(address: str, part: Path) -> None:
    import requests
    from requests.exceptions import ChunkedEncodingError

    validator: str | None = None
    for left in reversed(range(_TRIES)):
        have = part.stat().st_size if part.exists() and validator else 0
        try:
            with requests.get(
                address, headers=_headers(have, validator), stream=True, timeout=_WAIT_S
            ) as answer:
                answer.raise_for_status()
                validator = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
                have = have if answer.status_code == requests.codes.partial_content else 0
                expected = _length(answer, have)
                _write(answer, part, have, _most(part, have, expected))
            if expected is not None and part.stat().st_size != expected:
                raise requests.ConnectionError("it broke off")
            return
        except (requests.ConnectionError, requests.Timeout, ChunkedEncodingError):
            if not left:
                raise


def _write(answer: Any, part: Path, have: int, most: int) -> None:
    """Append what arrives to the first `have` bytes, up to `most` in all."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(part, flags, 0o600), "wb") as file:
        file.truncate(have)
        file.seek(have)
        for data in answer.iter_content(_CHUNK_BYTES):
            have += len(data)
            if have > most:
                raise RefusedError(f"an output file is longer than {most} bytes: not fetched")
            file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _most(part: Path, have: int, expected: int | None) -> int:
    """The bytes that may come in all: as announced, and as the disk has room for."""
    room = have + max(0, shutil.disk_usage(part.parent).free - _RESERVE_BYTES)
    if expected is not None and expected > room:
        raise RefusedError(f"an output file of {expected} bytes does not fit on the disk")
    return room if expected is None else expected


def _headers(have: int, validator: str | None) -> dict[str, str]:
    # Uncompressed, so that lengths can be compared.
    headers = {"Accept-Encoding": "identity"}
    if have and validator:
        headers |= {"Range": f"bytes={have}-", "If-Range": validator}
    return headers


def _length(answer: Any, before: int) -> int | None:
    length = answer.headers.get("Content-Length")
    return before + int(length) if length and length.isdigit() else None
