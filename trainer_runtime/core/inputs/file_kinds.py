"""What a file is by its content, and whether it is of the format that a source names."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.compression import SourceFile
from trainer_runtime.core.files.regular import open_regular

_HEAD_BYTES = 8192
_PARQUET = b"PAR1"
_PARQUET_END = struct.Struct("<L4s")
# Footers describe row groups: a terabyte has some 10 MB of them.
_LARGEST_FOOTER_BYTES = 64 << 20
# Between 0x00 and 0x1f a text has tabs, line ends and form feeds, and logs escapes.
_CONTROLS = bytes(byte for byte in range(32) if byte not in b"\t\n\r\f\x1b")
_MOST_CONTROLS = 0.01


@dataclass(frozen=True, slots=True)
class FileKind:
    """`name`: with its article. `remedy`: how a source can have it. `format`: of a source that
    reads such files; None where nothing here reads them."""

    name: str
    remedy: str
    format: str | None = None


_CONVERT = "extract its text first"
_TOKENS = "set the source's format to tokens"
_MAGIC: tuple[tuple[bytes, FileKind], ...] = (
    (b"BZh", FileKind("compressed by bzip2", "decompress it first (`bunzip2 FILE`)")),
    (_PARQUET, FileKind("a Parquet file", "set the source's format to parquet", "parquet")),
    (b"ARROW1", FileKind("an Arrow file", "set the source's format to arrow", "arrow")),
    (b"\xff\xff\xff\xff", FileKind("an Arrow stream", "set the source's format to arrow", "arrow")),
    (
        struct.pack("<i", 20240520),
        FileKind("a file of tokens with llm.c's header", _TOKENS, "tokens"),
    ),
    (
        struct.pack("<i", 20240801),
        FileKind("a file of tokens with llm.c's header", _TOKENS, "tokens"),
    ),
    (b"MMIDIDX\0\0", FileKind("Megatron's index of a file of tokens", _TOKENS, "tokens")),
    (b"PK\x03\x04", FileKind("a zip archive, or a PyTorch file", f"{_CONVERT} (`unzip FILE`)")),
    (b"\x80\x04\x95", FileKind("a Python pickle", _CONVERT)),
    (
        b"\x93NUMPY",
        FileKind("a NumPy array", f"write tokens as 16 bits, then {_TOKENS}"),
    ),
    (b"\x89HDF\r\n", FileKind("an HDF5 file", _CONVERT)),
    (b"SQLite format 3\0", FileKind("an SQLite database", _CONVERT)),
    (b"%PDF-", FileKind("a PDF", _CONVERT)),
    (b"\xff\xfe", FileKind("a text in UTF-16", "convert it (`iconv -f UTF-16 -t UTF-8`)")),
    (b"\xfe\xff", FileKind("a text in UTF-16", "convert it (`iconv -f UTF-16 -t UTF-8`)")),
)


def kind_of(head: bytes) -> FileKind | None:
    """What a file is that begins so; None for text and for what nobody knows."""
    return next((kind for magic, kind in _MAGIC if head.startswith(magic)), None)


def problem_of_text(path: Path) -> str | None:
    """Why a file is not text, decompressed where it is compressed; None where it may be.

    Raises:
        OSError: it can't be read.
        CompressedFileError: it is damaged.
    """
    head, method = _head(path)
    kind = kind_of(head)
    if kind is not None:
        within = "" if method is None else f"{method} of "
        return f"{path.name} is {within}{kind.name}, not text: {kind.remedy}"
    if b"\0" in head or _controls(head) > _MOST_CONTROLS * len(head):
        return (
            f"{path.name} is not text; where it holds token ids, {_TOKENS}, else give the text "
            "that it was made from"
        )
    return None


def is_json_lines(path: Path) -> bool:
    """Whether the first line of a file is a whole JSON object, or the begin of a long one.

    Raises:
        OSError: it can't be read.
        CompressedFileError: it is damaged.
    """
    line, ends, _ = _head(path)[0].lstrip().partition(b"\n")
    if not line.startswith(b'{"'):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return not ends
    except RecursionError:
        return True


def problem_of_parquet(path: Path) -> str | None:
    """Why a file is not a whole Parquet file, or not one to be read here.

    Raises:
        OSError: it can't be read.
    """
    with open_regular(path) as stream:
        begin = stream.read(len(_PARQUET))
        size = stream.seek(0, 2)
        stream.seek(max(0, size - _PARQUET_END.size))
        end = stream.read(_PARQUET_END.size)
    if len(end) == _PARQUET_END.size:
        footer_bytes, magic = _PARQUET_END.unpack(end)
        if begin == magic == _PARQUET and footer_bytes + _PARQUET_END.size < size:
            too_large = footer_bytes > _LARGEST_FOOTER_BYTES
            return f"{path.name} has a footer of {footer_bytes:,} bytes" if too_large else None
    return f"{path.name} is not a Parquet file, or is cut off"


def _head(path: Path) -> tuple[bytes, str | None]:
    """What a file begins with, and how it is compressed; nothing where this machine can't
    decompress it."""
    try:
        with SourceFile(path) as opened:
            return opened.text.read(_HEAD_BYTES), opened.method
    except ImportError:
        return b"", None


def _controls(head: bytes) -> int:
    return len(head) - len(head.translate(None, _CONTROLS))
