"""A run's files as lines of a Kaggle log, the only channel out of a running kernel.

A line is `TM1 {"file":…,"at":…,"z":…}`: bytes of one file from offset `at` on, deflated, in base64;
with `"whole":true` all of a file that is replaced as a whole. Offsets make lines repeatable: a
reader that sees them twice, or starts from the beginning, knows from the length of its copy what it
already has.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, decode_fields

PREFIX = "TM1 "
# Of one line, before it is deflated; a log viewer has to live with its lines.
LONGEST_FRAME_BYTES = 48 << 10
# The limit of a file that is sent whole; what would unpack to more is dropped.
_MOST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Frame:
    """`file`: its name in the run's folder; `at`: where `data` begins in it."""

    file: str
    at: int
    data: bytes
    whole: bool = False
    mtime_ns: int = 0


def encode_frames(
    file: str, at: int, data: bytes, *, whole: bool = False, mtime_ns: int = 0
) -> Iterator[str]:
    """The lines, without their ends, that carry `data`; one line for what is whole."""
    step = max(1, len(data)) if whole else LONGEST_FRAME_BYTES
    for start in range(0, max(1, len(data)), step):
        deflated = zlib.compress(data[start : start + step], 6)
        fields: dict[str, object] = {
            "file": file,
            "at": at + start,
            "z": base64.b64encode(deflated).decode(),
        }
        if whole:
            fields |= {"whole": True, "mtime_ns": mtime_ns}
        yield PREFIX + json.dumps(fields, separators=(",", ":"))


def _inflated(packed: bytes) -> bytes:
    """Raises:
    ValueError: it unpacks to more than a frame may hold, or is not whole.
    """
    inflating = zlib.decompressobj()
    data = inflating.decompress(packed, _MOST_BYTES)
    if not inflating.eof:
        raise ValueError("more than a frame holds")
    return data


def decode_frame(line: str) -> Frame | None:
    """The frame of a line; None for a line that is none, or that was damaged on the way."""
    if not line.startswith(PREFIX):
        return None
    try:
        fields = decode_fields(line[len(PREFIX) :], "a frame", max_bytes=MAX_DOCUMENT_BYTES)
        data = _inflated(base64.b64decode(fields.text("z"), validate=True))
        file, at = fields.text("file"), fields.integer("at")
        if at < 0:
            return None
        whole, mtime_ns = fields.flag("whole", False), fields.integer("mtime_ns", 0)
        return Frame(file, at, data, whole, mtime_ns)
    except (ValueError, zlib.error, binascii.Error):
        return None
