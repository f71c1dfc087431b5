"""Reads files compressed by gzip, xz or zstd as what they hold, in bounded memory.

They are recognized by their first bytes. gzip (RFC 1952), xz (tukaani.org/xz/xz-file-format.txt)
and zstd (RFC 8878) may hold several members, one after another; all are read. The window that
decompression takes is limited, and so is what one read gives, whatever a file claims to hold.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Protocol

from trainer_runtime.core.files.reading import check_reading
from trainer_runtime.core.files.regular import open_regular

ZSTD = "zstd"
MAGIC_BYTES = 6
# By the first bytes. Parallel zstd begins with a frame that is to be skipped.
_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", ZSTD),
    (b"\x50\x2a\x4d\x18", ZSTD),
)
# By how names of compressed files end.
METHODS = {".gz": "gzip", ".xz": "xz", ".zst": ZSTD}
# What it holds at most, decompressed: of zstd 32 MiB, of xz 7, of gzip 1.
_PIECE_BYTES = 1 << 10
# `xz -9` takes 65 MiB.
_MOST_XZ_BYTES = 256 << 20
_BUFFER_BYTES = 1 << 18


class CompressedFileError(ValueError):
    """A compressed file that is damaged, cut off, or takes too much memory."""


class _Member(Protocol):
    """As `zlib.decompressobj` makes them."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


class SourceFile:
    """A source's file, opened as what it holds; to be closed, or used by `with`.

    `text` is read; `method` is how it is compressed, None where it isn't.
    """

    def __init__(self, path: Path) -> None:
        """Raises:
        OSError: it can't be read.
        ImportError: what decompresses it is not installed.
        """
        self._file = open_regular(path)
        self.size_bytes = path.stat().st_size
        self.text: BufferedReader = self._file
        self._raw: _Decompressed | None = None
        try:
            self.method = compressed_by(self._file.peek(MAGIC_BYTES)[:MAGIC_BYTES])
            if self.method is not None:
                self._raw = _Decompressed(self._file, path, self.method)
                self.text = BufferedReader(self._raw, _BUFFER_BYTES)
        except BaseException:
            self._file.close()
            raise

    @property
    def read_bytes(self) -> int:
        """How much of the file itself has been read."""
        return self._file.seek(0, os.SEEK_CUR)

    @property
    def plain_bytes(self) -> int:
        """About how many bytes it holds, by how many were in what has been read of it."""
        if self._raw is None:
            return self.size_bytes
        return self.size_bytes * self._raw.given_bytes // max(1, self.read_bytes)

    def __enter__(self) -> SourceFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.text.close()
        self._file.close()


def compressed_by(head: bytes) -> str | None:
    """How a file is compressed that begins so: gzip, xz or zstd; None where by none of them."""
    return next((method for magic, method in _MAGIC if head.startswith(magic)), None)


def compression_of(path: Path) -> str | None:
    """How a file is compressed, as `compressed_by`.

    Raises:
        OSError: it can't be read.
    """
    with open_regular(path) as stream:
        return compressed_by(stream.read(MAGIC_BYTES))


def without_ending(name: str) -> str:
    """A file's name before it was compressed."""
    ending = next((ending for ending in METHODS if name.endswith(ending)), "")
    return name.removesuffix(ending)


class _Decompressed(io.RawIOBase):
    """The bytes that a compressed file holds."""

    def __init__(self, file: BinaryIO, path: Path, method: str) -> None:
        self._file, self._path, self._method = file, path, method
        self._begin = _members(method)
        self._member: _Member | None = self._begin()
        self._held = memoryview(b"")
        self.given_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        """Raises: CompressedFileError."""
        while not self._held:
            data = self._file.read(_PIECE_BYTES)
            if not data:
                if self._member is not None:
                    raise CompressedFileError(f"{self._path} is cut off ({self._method})")
                return 0
            check_reading()
            self._held = memoryview(self._decompressed(data))
            self.given_bytes += len(self._held)
        given, self._held = self._held[: len(buffer)], self._held[len(buffer) :]
        buffer[: len(given)] = given
        return len(given)

    def _decompressed(self, data: bytes) -> bytes:
        parts = []
        while data:
            if self._member is None:
                data = data.lstrip(b"\0")  # what fills up tapes, and xz's padding
                if not data:
                    break
                self._member = self._begin()
            try:
                parts.append(self._member.decompress(data))
            except MemoryError:
                raise
            except Exception as error:  # of zlib, lzma or zstandard, which share no base
                raise CompressedFileError(
                    f"{self._path} is damaged: {self._method} can't decompress it ({error})"
                ) from None
            if not self._member.eof:
                break
            data, self._member = self._member.unused_data, None
        return b"".join(parts)


def _members(method: str) -> Callable[[], _Member]:
    """What begins a member."""
    if method == "gzip":
        import zlib

        return lambda: zlib.decompressobj(16 + zlib.MAX_WBITS)
    if method == "xz":
        import lzma

        return lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_XZ_BYTES)
    import zstandard

    return lambda: zstandard.ZstdDecompressor().decompressobj()
