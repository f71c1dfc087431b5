"""Rows of other libraries' shards: WebDataset, MosaicML Streaming (MDS), TFRecord.

Read by their documented layouts, sample after sample, in the memory of one sample; gzip, xz and
zstd around a shard are decompressed while it is read. A row has the columns that hold text, JSON or
whole numbers; others, such as pictures, are left out.
"""

from __future__ import annotations

import struct
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from trainer_runtime.core.decoding import (
    MAX_DOCUMENT_BYTES,
    MAX_ROW_DEPTH,
    decode_fields,
    decode_value,
)
from trainer_runtime.core.files.compression import SourceFile
from trainer_runtime.core.inputs.tfrecord_rows import tfrecord_rows

_U32 = struct.Struct("<I")
_MOST_SAMPLES = 1 << 26
_TEXT_MEMBERS = {"txt": "text", "text": "text"}

Row = dict[str, Any]


class ShardError(ValueError):
    """A shard that is damaged, cut off, or of another layout; the message names the file."""


def shard_rows(path: Path, data_format: str) -> Iterator[Row]:
    """The rows of one shard.

    Raises:
        ShardError: it is damaged, cut off, or not of the format.
        OSError: it can't be read.
        ImportError: what decompresses it is not installed.
    """
    try:
        with SourceFile(path) as opened:
            yield from _READERS[data_format](path, opened.text)
    except ShardError:
        raise
    except (ValueError, EOFError, struct.error, tarfile.TarError) as error:
        raise ShardError(f"{path.name}: {error}") from None


def _of_webdataset(path: Path, stream: BinaryIO) -> Iterator[Row]:
    """Members that share a name up to its first dot are a sample; what follows is a column."""
    row: Row = {}
    sample = None
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if not member.isfile():
                continue
            name = PurePosixPath(member.name)
            stem, _, column = name.name.partition(".")
            key = str(name.with_name(stem or name.name))
            if key != sample and row:
                yield row
                row = {}
            sample = key
            if column.rpartition(".")[2] in ("txt", "text", "json"):
                row |= _columns(path, member, column, archive)
    if row:
        yield row


def _columns(
    path: Path, member: tarfile.TarInfo, column: str, archive: tarfile.TarFile
) -> Mapping[str, Any]:
    opened = archive.extractfile(member)
    content = b"" if opened is None else opened.read(MAX_DOCUMENT_BYTES + 1)
    try:
        if len(content) < min(member.size, MAX_DOCUMENT_BYTES + 1):
            raise ValueError("it is cut off")
        stem, _, kind = column.rpartition(".")
        if kind != "json":
            return {stem or _TEXT_MEMBERS[kind]: content.decode()}
        value = _json(content)
    except (ValueError, EOFError) as error:
        raise ShardError(f"{path.name}: member {member.name}: {error}") from None
    return value if isinstance(value, dict) and not stem else {stem or "json": value}


def _of_mds(path: Path, stream: BinaryIO) -> Iterator[Row]:
    """A number of samples, their offsets, a configuration as JSON, and the samples: the sizes of
    the columns without a fixed one, then the columns."""
    offsets = _offsets(stream)
    start = _U32.size * (len(offsets) + 1)
    fields = decode_fields(
        _exactly(stream, offsets[0] - start), path.name, max_bytes=MAX_DOCUMENT_BYTES
    )
    names, kinds = fields.texts("column_names"), fields.texts("column_encodings")
    sizes = fields.values.get("column_sizes")
    if not isinstance(sizes, list) or not len(names) == len(kinds) == len(sizes):
        raise ShardError(f"{path.name}: its columns are not described as MDS describes them")
    for number, content in enumerate(_samples(path, stream, offsets)):
        try:
            values = _leaves(content, [None if size is None else int(size) for size in sizes])
            yield _decoded(names, kinds, values)
        except ValueError as error:
            raise ShardError(f"{path.name}: sample {number}: {error}") from None


def _offsets(stream: BinaryIO) -> list[int]:
    (count,) = _U32.unpack(_exactly(stream, _U32.size))
    if count > _MOST_SAMPLES:
        raise ValueError(f"it claims {count:,} samples")
    packed = _exactly(stream, _U32.size * (count + 1))
    offsets = list(struct.unpack(f"<{count + 1}I", packed))
    if offsets != sorted(offsets) or offsets[0] < _U32.size * (count + 2):
        raise ValueError("its offsets are not those of a shard of this format")
    return offsets


def _samples(path: Path, stream: BinaryIO, offsets: list[int]) -> Iterator[bytes]:
    for number, (start, end) in enumerate(pairwise(offsets)):
        if end - start > MAX_DOCUMENT_BYTES:
            raise ShardError(f"{path.name}: sample {number} has {end - start:,} bytes")
        try:
            yield _exactly(stream, end - start)
        except EOFError:
            raise ShardError(f"{path.name}: it is cut off within sample {number}") from None


def _exactly(stream: BinaryIO, size_bytes: int) -> bytes:
    if not 0 <= size_bytes <= max(MAX_DOCUMENT_BYTES, _U32.size * (_MOST_SAMPLES + 1)):
        raise ValueError("its header is not that of a shard of this format")
    content = stream.read(size_bytes)
    if len(content) < size_bytes:
        raise EOFError("it is cut off")
    return content


def _leaves(content: bytes, sizes: list[int | None]) -> list[bytes]:
    free = [number for number, size in enumerate(sizes) if size is None]
    start = _U32.size * len(free)
    named = struct.unpack_from(f"<{len(free)}I", content) if len(content) >= start else ()
    if len(named) < len(free):
        raise ValueError("its sizes are cut off")
    lengths = dict(zip(free, named, strict=True))
    leaves = []
    for number, size in enumerate(sizes):
        end = start + (lengths[number] if size is None else size)
        leaves.append(content[start:end])
        start = end
    if start != len(content):
        raise ValueError("its sizes don't add up")
    return leaves


def _decoded(names: Sequence[str], kinds: Sequence[str], values: Sequence[bytes]) -> Row:
    row: Row = {}
    for name, kind, value in zip(names, kinds, values, strict=True):
        word = kind.partition(":")[0]
        if word in ("str", "string"):
            row[name] = value.decode()
        elif word == "json":
            row[name] = _json(value)
        elif word == "int" and len(value) == struct.calcsize("<q"):
            (row[name],) = struct.unpack("<q", value)
        elif word in ("boolean", "bool"):
            row[name] = bool(any(value))
    return row


def _json(content: bytes) -> Any:
    return decode_value(content, "JSON", max_bytes=MAX_DOCUMENT_BYTES, max_depth=MAX_ROW_DEPTH)


def _of_tfrecord(path: Path, stream: BinaryIO) -> Iterator[Row]:
    yield from tfrecord_rows(stream)


_READERS: Mapping[str, Callable[[Path, BinaryIO], Iterator[Row]]] = {
    "webdataset": _of_webdataset,
    "mds": _of_mds,
    "tfrecord": _of_tfrecord,
}
