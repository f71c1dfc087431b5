"""Reads archives of `torch.save` that anybody may have written: zip files of stored records.

What PyTorch writes may be there, and nothing else: records one after the other, each once, none of
them packed. So reading all of them reads no byte twice, whatever the archive says of itself.
Layout: PKWARE's APPNOTE 6.3.10, 4.3 and 4.5.3.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.regular import open_regular

# Of the list of records. A tensor's takes 80 to 200 bytes, the largest models have some 100,000.
LARGEST_LIST_BYTES = 64 << 20
_PIECE_BYTES = 4 << 20
_BEGINS = b"PK"
_LOCAL = struct.Struct("<4s5H3L2H")
_LISTED = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_WIDE_LOCATOR = struct.Struct("<4sLQL")
_WIDE_END = struct.Struct("<4sQ2H2L4Q")
_WIDE_FIELD, _WIDE = 1, 0xFFFFFFFF
_ENCRYPTED = 1
_TORN = "is torn: its list of records is not whole"


class ArchiveError(ValueError):
    """An archive that is not as PyTorch writes them; the words that follow the file's name."""


@dataclass(frozen=True, slots=True)
class Record:
    """`begin`: of its data in the file."""

    name: str
    begin: int
    size: int
    crc32: int


def check_archive(path: Path) -> None:
    """Read every record once and compare it with the CRC-32 that is kept of it.

    Raises:
        ArchiveError: torn, damaged, or not as PyTorch writes them.
        OSError: it can't be read.
    """
    with open_regular(path) as file:
        descriptor = file.fileno()
        for record in _records(descriptor):
            if _crc32(descriptor, record) != record.crc32:
                name = record.name.encode(errors="replace").decode()
                raise ArchiveError(f"is damaged: {name} differs from its CRC-32")


def read_record(path: Path, ending: str, max_bytes: int) -> bytes | None:
    """The first record whose name ends so; None where it is larger than that.

    Raises:
        ArchiveError: there is none, or the archive is not as PyTorch writes them.
        OSError: it can't be read.
    """
    with open_regular(path) as file:
        for record in _records(file.fileno()):
            if record.name.endswith(ending):
                if record.size > max_bytes:
                    return None
                return _exactly(file.fileno(), record.begin, record.size)
    raise ArchiveError(f"holds no {ending}")


def _records(descriptor: int) -> list[Record]:
    """In the order of their bytes.

    Raises:
        ArchiveError: as `check_archive`.
    """
    size = os.fstat(descriptor).st_size
    if size == 0:
        raise ArchiveError("is empty")
    if os.pread(descriptor, len(_BEGINS), 0) != _BEGINS:
        raise ArchiveError(
            "is not an archive of torch.save: torn, or written by a PyTorch before 1.6"
        )
    begin, length, count = _list_of_records(descriptor, size)
    listed = sorted(_listed(_exactly(descriptor, begin, length)), key=lambda record: record.begin)
    if len(listed) != count:
        raise ArchiveError(_TORN)
    if len({record.name for record in listed}) != count:
        raise ArchiveError("names a record twice")
    return list(_located(descriptor, listed, begin))


def _list_of_records(descriptor: int, size: int) -> tuple[int, int, int]:
    """Where the list begins, its length in bytes, and the number of records."""
    at = size - _END.size
    mark, _, _, _, count, length, begin, comment = _END.unpack(
        _exactly(descriptor, max(0, at), _END.size)
    )
    if mark != b"PK\x05\x06" or comment:
        raise ArchiveError(_TORN)
    locator = os.pread(descriptor, _WIDE_LOCATOR.size, max(0, at - _WIDE_LOCATOR.size))
    if locator.startswith(b"PK\x06\x07") and len(locator) == _WIDE_LOCATOR.size:
        at = _WIDE_LOCATOR.unpack(locator)[2]
        wide = _WIDE_END.unpack(_exactly(descriptor, at, _WIDE_END.size))
        if wide[0] != b"PK\x06\x06":
            raise ArchiveError(_TORN)
        count, length, begin = wide[7:]
    if begin + length != at:
        raise ArchiveError(_TORN)
    if length > LARGEST_LIST_BYTES:
        raise ArchiveError("has a longer list of records than PyTorch writes")
    return begin, length, count


def _listed(data: bytes) -> Iterator[Record]:
    """The records as the list has them: `begin` is that of their headers."""
    at = 0
    while at < len(data):
        if len(data) - at < _LISTED.size:
            raise ArchiveError(_TORN)
        fields = _LISTED.unpack_from(data, at)
        flags, method, (crc32, stored, size) = fields[3], fields[4], fields[7:10]
        name_bytes, extra_bytes, comment_bytes, begin = *fields[10:13], fields[16]
        name_end = at + _LISTED.size + name_bytes
        extra = data[name_end : name_end + extra_bytes]
        size, stored, begin = _widened(extra, (size, stored, begin))
        if fields[0] != b"PK\x01\x02" or name_end + extra_bytes + comment_bytes > len(data):
            raise ArchiveError(_TORN)
        if method or flags & _ENCRYPTED or stored != size:
            raise ArchiveError("holds packed records, which PyTorch writes none of")
        name = data[at + _LISTED.size : name_end].decode("utf-8", "surrogateescape")
        yield Record(name, begin, size, crc32)
        at = name_end + extra_bytes + comment_bytes


def _widened(extra: bytes, values: tuple[int, int, int]) -> list[int]:
    """The values, those of them that have no room in 32 bits from the extra field."""
    if _WIDE not in values:
        return list(values)
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == _WIDE_FIELD:
            field = extra[at + 4 : at + 4 + length]
            wide = (value for (value,) in struct.iter_unpack("<Q", field[: len(field) // 8 * 8]))
            return [next(wide, value) if value == _WIDE else value for value in values]
        at += 4 + length
    return list(values)


def _located(descriptor: int, listed: Sequence[Record], list_begin: int) -> Iterator[Record]:
    """The records with their data's begin, by their own headers."""
    ends = [record.begin for record in listed[1:]] + [list_begin]
    for record, end in zip(listed, ends, strict=True):
        name = record.name.encode("utf-8", "surrogateescape")
        header = _exactly(descriptor, record.begin, _LOCAL.size + len(name))
        fields = _LOCAL.unpack_from(header)
        if fields[0] != b"PK\x03\x04" or header[_LOCAL.size :] != name or fields[9] != len(name):
            raise ArchiveError(_TORN)
        begin = record.begin + len(header) + fields[10]
        if begin + record.size > end:
            raise ArchiveError("has records that overlap, or that reach over its end")
        yield Record(record.name, begin, record.size, record.crc32)


def _crc32(descriptor: int, record: Record) -> int:
    crc32, at, end = 0, record.begin, record.begin + record.size
    while at < end:
        piece = os.pread(descriptor, min(_PIECE_BYTES, end - at), at)
        if not piece:
            raise ArchiveError("became shorter while it was read")
        crc32, at = zlib.crc32(piece, crc32), at + len(piece)
    return crc32


def _exactly(descriptor: int, begin: int, length: int) -> bytes:
    try:
        data = os.pread(descriptor, length, begin)
    except (OverflowError, OSError):  # an offset beyond what a file has
        raise ArchiveError(_TORN) from None
    if len(data) != length:
        raise ArchiveError(_TORN)
    return data
