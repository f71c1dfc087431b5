"""Zip archives byte by byte, as `torch.save` writes them or with lies in any field."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

PLAIN_PICKLE = b"\x80\x02}q\x00."  # an empty dict
_LOCAL, _DIRECTORY, _END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"


@dataclass(frozen=True)
class Entry:
    """A record, and what its two headers say of it; None for the truth."""

    name: bytes
    data: bytes = b""
    method: int = 0
    flags: int = 0
    offset: int | None = None
    stored: int | None = None
    unpacked: int | None = None
    crc: int | None = None
    local_name: bytes | None = None
    extra: bytes = b""
    # Appear in the directory alone: its data is another record's.
    is_shadow: bool = False


def zip_bytes(
    entries: Sequence[Entry],
    *,
    count: int | None = None,
    directory_bytes: int | None = None,
    directory_at: int | None = None,
    comment: bytes = b"",
) -> bytes:
    """An archive of the entries; the keywords are what its end record says."""
    body, listed = bytearray(), []
    for entry in entries:
        at = len(body)
        if not entry.is_shadow:
            body += _local(entry) + entry.data
        listed.append(entry if entry.offset is not None else replace(entry, offset=at))
    directory = b"".join(map(_of_directory, listed))
    end = _END + struct.pack(
        "<HHHHIIH",
        0,
        0,
        (len(listed) if count is None else count) & 0xFFFF,
        (len(listed) if count is None else count) & 0xFFFF,
        len(directory) if directory_bytes is None else directory_bytes,
        len(body) if directory_at is None else directory_at,
        len(comment),
    )
    return bytes(body) + directory + end + comment


def overlapping(count: int, size: int) -> bytes:
    """Records that all are the same bytes: read one by one, they are `count` times the file."""
    data = bytes(size)
    record = Entry(b"archive/data/0", data, crc=zlib.crc32(data))
    return zip_bytes([record, *[replace(record, offset=0, is_shadow=True)] * (count - 1)])


def _local(entry: Entry) -> bytes:
    name = entry.name if entry.local_name is None else entry.local_name
    return (
        _LOCAL
        + struct.pack(
            "<HHHHHIIIHH", 20, entry.flags, entry.method, 0, 0x21, *_sizes(entry), len(name), 0
        )
        + name
    )


def _of_directory(entry: Entry) -> bytes:
    return (
        _DIRECTORY
        + struct.pack(
            "<HHHHHHIIIHHHHHII",
            20,
            20,
            entry.flags,
            entry.method,
            0,
            0x21,
            *_sizes(entry),
            len(entry.name),
            len(entry.extra),
            0,
            0,
            0,
            0,
            entry.offset or 0,
        )
        + entry.name
        + entry.extra
    )


def _sizes(entry: Entry) -> tuple[int, int, int]:
    data = entry.data
    return (
        zlib.crc32(data) if entry.crc is None else entry.crc,
        len(data) if entry.stored is None else entry.stored,
        len(data) if entry.unpacked is None else entry.unpacked,
    )
