"""What a log may be wrapped in: compression, UTF-16, the JSON of a container engine, a notebook."""

from __future__ import annotations

import re

HEAD_BYTES = 1 << 16
# Beginnings of JSON objects that hold one piece of a log each.
_OBJECTS: tuple[tuple[str, str, re.Pattern[bytes]], ...] = (
    ("Docker's JSON", "log", re.compile(rb'\{"log": ?".*"stream": ?"std(?:out|err)"')),
    ("Kaggle's JSON", "data", re.compile(rb'\[?\s*\{(?=[^\n]*"stream_name")(?=[^\n]*"data")')),
    ("Cloud Logging's JSON", "textPayload", re.compile(rb'[\[\s]*\{(?=.{0,2000}"textPayload":)')),
    ("the journal's JSON", "MESSAGE", re.compile(rb'\{(?=[^\n]*"__CURSOR")(?=[^\n]*"MESSAGE")')),
)
_NOTEBOOK = re.compile(rb'\{(?=.*"cells"\s*:)(?=.*"(?:cell_type|nbformat)"\s*:)', re.DOTALL)
_MAGIC = (
    ("gzip", b"\x1f\x8b"),
    ("xz", b"\xfd7zXZ\0"),
    ("bzip2", b"BZh"),
    ("UTF-16", b"\xff\xfe"),
    ("UTF-16", b"\xfe\xff"),
)


def carrier_of(head: bytes) -> str | None:
    """What a file that begins so wraps a log in; None for a log itself and for all else."""
    for name, magic in _MAGIC:
        if head.startswith(magic):
            return name
    text = head.lstrip()
    if text[:1] not in (b"{", b"["):
        return None
    objects = (name for name, _, begin in _OBJECTS if begin.match(text))
    return next(objects, "a notebook" if _NOTEBOOK.match(text) else None)


def text_key(carrier: str) -> str | None:
    """The key under which each JSON object of a carrier has its text; None for other carriers."""
    return next((key for name, key, _ in _OBJECTS if name == carrier), None)
