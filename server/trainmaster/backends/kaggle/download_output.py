"""Download a file of a kernel's output. Runs in the worker process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_CHUNK_BYTES = 1 << 20
_WAIT_S = (15.0, 90.0)
_TRIES = 4


def fetch_blob(address: str, path: Path) -> None:
    """Download to `path`, which is replaced at the end; a broken download is resumed.

    Raises:
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
                is_partial = answer.status_code == requests.codes.partial_content
                expected = _length(answer, have if is_partial else 0)
                with part.open("ab" if is_partial else "wb") as file:
                    for data in answer.iter_content(_CHUNK_BYTES):
                        file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            if expected is not None and part.stat().st_size != expected:
                raise requests.ConnectionError("it broke off")
            return
        except (requests.ConnectionError, requests.Timeout, ChunkedEncodingError):
            if not left:
                raise


def _headers(have: int, validator: str | None) -> dict[str, str]:
    # Uncompressed, so that lengths can be compared.
    headers = {"Accept-Encoding": "identity"}
    if have and validator:
        headers |= {"Range": f"bytes={have}-", "If-Range": validator}
    return headers


def _length(answer: Any, before: int) -> int | None:
    length = answer.headers.get("Content-Length")
    return before + int(length) if length and length.isdigit() else None
