"""Rows of TFRecord files: framed records with checksums, each a `tf.train.Example`.

By tensorflow.org/tutorials/load_data/tfrecord ("TFRecords format details") and example.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES

_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_CASTAGNOLI = 0x82F63B78
_MASK = 0xA282EAD8
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_BYTES_LIST, _INTEGER_LIST = 1, 3


def tfrecord_rows(stream: BinaryIO) -> Iterator[dict[str, Any]]:
    """The examples of a file: texts, whole numbers, and lists of them where there are several.

    Raises:
        ValueError: a record is damaged or cut off, or is not an Example; the message numbers it.
    """
    number = 0
    while head := stream.read(_LENGTH.size):
        try:
            yield _example(_record(stream, head))
        except (ValueError, IndexError, struct.error) as error:
            raise ValueError(f"record {number}: {error}") from None
        number += 1


def _record(stream: BinaryIO, head: bytes) -> memoryview:
    checksum = stream.read(_CHECKSUM.size)
    if len(head) < _LENGTH.size or len(checksum) < _CHECKSUM.size:
        raise ValueError("it is cut off")
    if _masked(head) != _CHECKSUM.unpack(checksum)[0]:
        raise ValueError("its length differs from its checksum: not a TFRecord file, or damaged")
    (size_bytes,) = _LENGTH.unpack(head)
    if size_bytes > MAX_DOCUMENT_BYTES:
        raise ValueError(f"it has {size_bytes:,} bytes")
    content, checksum = stream.read(size_bytes), stream.read(_CHECKSUM.size)
    if len(content) < size_bytes or len(checksum) < _CHECKSUM.size:
        raise ValueError("it is cut off")
    if _masked(content) != _CHECKSUM.unpack(checksum)[0]:
        raise ValueError("it differs from its checksum")
    return memoryview(content)


def _example(record: memoryview) -> dict[str, Any]:
    """Example.features (1) → Features.feature (1), a map of key (1) and Feature (2)."""
    row: dict[str, Any] = {}
    for features in _parts(record, 1):
        for entry in _parts(features, 1):
            key = bytes(next(_parts(entry, 1), memoryview(b""))).decode()
            values = [value for feature in _parts(entry, 2) for value in _values(feature)]
            if values:
                row[key] = values[0] if len(values) == 1 else values
    return row


def _values(feature: memoryview) -> Iterator[str | int]:
    for number, content in _fields(feature):
        if number == _BYTES_LIST:
            for value in _parts(content, 1):
                yield bytes(value).decode()
        elif number == _INTEGER_LIST:
            for inner, value in _fields(content):
                if inner == 1:
                    yield from _integers(value)


def _integers(packed: memoryview) -> Iterator[int]:
    at = 0
    while at < len(packed):
        value, at = _varint(packed, at)
        yield value - (1 << 64) if value >> 63 else value


def _parts(message: memoryview, wanted: int) -> Iterator[memoryview]:
    return (content for number, content in _fields(message) if number == wanted)


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The fields of a protobuf message (protobuf.dev/programming-guides/encoding)."""
    at = 0
    while at < len(message):
        tag, begin = _varint(message, at)
        kind = tag & 7
        if kind == _BYTES:
            size, begin = _varint(message, begin)
            at = begin + size
        elif kind == _VARINT:
            _, at = _varint(message, begin)
        elif kind in (_FIXED64, _FIXED32):
            at = begin + (8 if kind == _FIXED64 else 4)
        else:
            raise ValueError("it is not a tf.train.Example")
        if at > len(message):
            raise ValueError("it is not a tf.train.Example")
        yield tag >> 3, message[begin:at]


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at
        if shift > 63:
            raise ValueError("it is not a tf.train.Example")


def _table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_CASTAGNOLI if value & 1 else 0)  # noqa: PLW2901
        table.append(value)
    return tuple(table)


_TABLE = _table()


def _masked(content: bytes) -> int:
    """CRC-32C (RFC 3720, appendix B.4), as TFRecord masks it."""
    checksum = 0xFFFFFFFF
    for byte in content:
        checksum = _TABLE[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    checksum ^= 0xFFFFFFFF
    return ((checksum >> 15 | checksum << 17) + _MASK) & 0xFFFFFFFF
