"""Text that is not UTF-8: a few bytes are damage, more are another encoding."""

from __future__ import annotations

import codecs
from pathlib import Path

from trainer_runtime.core.files.compression import SourceFile, compression_of
from trainer_runtime.core.files.regular import open_regular

# One byte in ten thousand. Texts in Latin-1 and Windows-1252 have ten to a thousand times that,
# even English ones (quotation marks); crawled UTF-8 has less.
MOST_UNDECODABLE = 1e-4
_WINDOW_BYTES = 16 << 10
_BEGIN_BYTES = 3 * _WINDOW_BYTES
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_CONTINUATION = bytes(range(0x80, 0xC0))


class Utf8Text:
    """Decodes a file's bytes one block after another; `undecodable` counts what was replaced."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.undecodable = 0

    def decode(self, data: bytes, *, final: bool = False) -> str:
        text = self._decoder.decode(data, final)
        # What the file itself has for it is three bytes, seldom parted by the end of a block.
        own = data.count(_REPLACEMENT.encode())
        self.undecodable += max(0, text.count(_REPLACEMENT) - own)
        return text


def sampled(path: Path) -> tuple[int, int]:
    """The undecodable bytes of a file's begin, middle and end, and how many bytes were read; of a
    compressed one its begin, and nothing where this machine can't decompress it.

    Raises:
        OSError: it can't be read.
        CompressedFileError: it is damaged.
    """
    if compression_of(path) is not None:
        return _of_begin(path)
    undecodable = total = 0
    with open_regular(path) as stream:
        size = path.stat().st_size
        for start in sorted({0, (size - _WINDOW_BYTES) // 2, size - _WINDOW_BYTES}):
            stream.seek(max(0, start))
            data = stream.read(_WINDOW_BYTES)
            text = Utf8Text()
            # Between characters nobody knows where a window begins.
            text.decode(data if start <= 0 else data[:4].lstrip(_CONTINUATION) + data[4:])
            undecodable += text.undecodable
            total += len(data)
            if size <= _WINDOW_BYTES:
                break
    return undecodable, total


def _of_begin(path: Path) -> tuple[int, int]:
    try:
        with SourceFile(path) as opened:
            data = opened.text.read(_BEGIN_BYTES)
    except ImportError:
        return 0, 0
    text = Utf8Text()
    text.decode(data)
    return text.undecodable, len(data)


def is_another_encoding(undecodable: int, total_bytes: int) -> bool:
    return undecodable > MOST_UNDECODABLE * total_bytes


def another_encoding(name: str, undecodable: int, total_bytes: int) -> str:
    """What to say of a file that has too much that is not UTF-8."""
    return (
        f"{name} is not UTF-8: {undecodable:,} of {total_bytes:,} bytes can't be decoded, where "
        f"{MOST_UNDECODABLE:.2%} may be damage. Convert it (`iconv -f WINDOWS-1252 -t UTF-8 FILE > "
        "OTHER`, or from whichever encoding it has); `iconv -c -f UTF-8 -t UTF-8` drops damaged "
        "bytes"
    )
