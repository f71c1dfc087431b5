"""The text of a log that is wrapped in something else, piece by piece.

Wrappers may be nested (a compressed log of Docker).
"""

from __future__ import annotations

import bz2
import codecs
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from html import unescape
from itertools import chain
from typing import Any

from trainer_runtime.core.inputs.carriers import HEAD_BYTES, carrier_of, text_key

_GZIP = 31  # zlib's window, in gzip's container
_LZMA_MEMORY_BYTES = 256 << 20
_PIECE_BYTES = 1 << 20
_LONGEST_OBJECT = 4 << 20
_MOST_NESTED = 3
_SEPARATORS = re.compile(r"[\s,\[\]]*")
_ROW = re.compile(r"<tr\b[^>]*>(.*?)</tr>", re.DOTALL | re.IGNORECASE)
_CELL = re.compile(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?$")
# Of the table that transformers' trainer draws in a notebook.
_COLUMNS = {
    "Step": "step",
    "Epoch": "epoch",
    "Training Loss": "loss",
    "Validation Loss": "eval_loss",
}


class TooLarge(ValueError):
    """The text is longer than may be unpacked."""


def unwrapped(chunks: Iterable[bytes], most_bytes: int) -> Iterator[bytes]:
    """The text of a file, given in pieces, in pieces.

    Of a compressed file that was cut off, what there is.

    Raises:
        TooLarge: there are more than `most_bytes` of it.
    """
    for _ in range(_MOST_NESTED):
        head, chunks = _with_head(chunks)
        name = carrier_of(head)
        if name is None:
            break
        chunks = _bounded(_opened(name, chunks, most_bytes), most_bytes)
    yield from chunks


def _with_head(chunks: Iterable[bytes]) -> tuple[bytes, Iterator[bytes]]:
    read, size, iterator = [], 0, iter(chunks)
    for chunk in iterator:
        read.append(chunk)
        size += len(chunk)
        if size >= HEAD_BYTES:
            break
    return b"".join(read)[:HEAD_BYTES], chain(read, iterator)


def _bounded(chunks: Iterable[bytes], most_bytes: int) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > most_bytes:
            raise TooLarge(most_bytes)
        yield chunk


def _opened(name: str, chunks: Iterable[bytes], most_bytes: int) -> Iterator[bytes]:
    if name in _DECOMPRESSORS:
        return _decompressed(chunks, _DECOMPRESSORS[name])
    if name == "UTF-16":
        return _decoded(chunks)
    key = text_key(name)
    return _of_notebook(chunks, most_bytes) if key is None else _of_objects(chunks, key)


def _decompressed(chunks: Iterable[bytes], new: Callable[[], Any]) -> Iterator[bytes]:
    """Members may follow one another; what follows the last one is left out."""
    decompressor = new()
    for chunk in chunks:
        rest = chunk
        while rest:
            if decompressor.eof:
                decompressor = new()
            try:
                yield from _pieces(decompressor, rest)
            except (zlib.error, lzma.LZMAError, OSError, ValueError):
                return  # damaged from here on
            rest = decompressor.unused_data if decompressor.eof else b""


def _pieces(decompressor: Any, data: bytes) -> Iterator[bytes]:
    """What `data` unpacks to, at most a MiB at a time: a small file may hold very much."""
    piece = decompressor.decompress(data, _PIECE_BYTES)
    while piece:
        yield piece
        left = getattr(decompressor, "unconsumed_tail", b"")
        wants_more = not left and getattr(decompressor, "needs_input", True)
        if decompressor.eof or (wants_more and len(piece) < _PIECE_BYTES):
            return
        piece = decompressor.decompress(left, _PIECE_BYTES)


_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(_GZIP),
    "xz": lambda: lzma.LZMADecompressor(memlimit=_LZMA_MEMORY_BYTES),
    "bzip2": bz2.BZ2Decompressor,
}


def _decoded(chunks: Iterable[bytes]) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    for chunk in chunks:
        yield decoder.decode(chunk).encode("utf-8", "replace")


def _of_notebook(chunks: Iterable[bytes], most_bytes: int) -> Iterator[bytes]:
    """Its outputs; the file as it is where that is not a whole notebook."""
    data = b"".join(_bounded(chunks, most_bytes))
    try:
        text = notebook_text(json.loads(data))
    except (ValueError, RecursionError):
        yield data
        return
    yield text.encode("utf-8", "replace")


def _of_objects(chunks: Iterable[bytes], key: str) -> Iterator[bytes]:
    """The texts of JSON objects that follow one another, one a line or not; what is none stays."""
    scan, utf8 = json.JSONDecoder().raw_decode, codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    for chunk in chain(chunks, (b"",)):
        rest += utf8.decode(chunk)
        texts: list[str] = []
        at = 0
        while True:
            separators = _SEPARATORS.match(rest, at)
            begin = separators.end() if separators else at
            try:
                value, end = scan(rest, begin) if rest[begin : begin + 1] == "{" else (None, begin)
            except (ValueError, RecursionError):
                value, end = None, begin
            if value is None:
                after = _after_line(rest, begin, is_last=not chunk)
                if after is None:
                    break
                value, end = rest[at:after], after
            texts.append(_text_of(value, key))
            at = end
        rest = rest[at:]
        yield "".join(texts).encode("utf-8", "replace")


def _after_line(text: str, at: int, *, is_last: bool) -> int | None:
    """Where the line ends that is not an object; None where the rest of it is still to come."""
    end = text.find("\n", at) + 1
    if end:
        return end
    is_whole = is_last or len(text) - at > _LONGEST_OBJECT
    return len(text) if is_whole and at < len(text) else None


def _text_of(value: Any, key: str) -> str:
    if isinstance(value, str):
        return value
    text = value.get(key) if isinstance(value, dict) else None
    if not isinstance(text, str):
        return ""
    # Others give whole lines without their ends.
    return text if key in ("log", "data") else f"{text}\n"


def notebook_text(notebook: Any) -> str:
    """The outputs of all cells: streams, results, errors, and tables of losses as JSON lines.

    Raises:
        ValueError: it is not a notebook.
    """
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise ValueError("no cells")
    parts = [text for cell in cells for output in _outputs(cell) for text in _texts(output)]
    return "".join(part if part.endswith(("\n", "\r")) else f"{part}\n" for part in parts if part)


def _outputs(cell: Any) -> list[dict[str, Any]]:
    outputs = cell.get("outputs") if isinstance(cell, dict) else None
    return (
        [output for output in outputs if isinstance(output, dict)]
        if isinstance(outputs, list)
        else []
    )


def _texts(output: dict[str, Any]) -> Iterator[str]:
    if output.get("output_type") == "error":
        yield _joined(output.get("traceback"), "\n")
    elif "text" in output:
        yield _joined(output["text"], "")
    elif isinstance(data := output.get("data"), dict):
        table = "".join(_table(_joined(data.get("text/html"), "")))
        yield table or _joined(data.get("text/plain"), "")


def _joined(value: Any, separator: str) -> str:
    if isinstance(value, list):
        return separator.join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _table(html: str) -> Iterator[str]:
    """A line of JSON for each row of a table with a column of training losses."""
    rows = [
        [unescape(_TAG.sub("", cell)).strip() for cell in _CELL.findall(row)]
        for row in _ROW.findall(html)
    ]
    if not rows or "Training Loss" not in rows[0] or not {"Step", "Epoch"} & set(rows[0]):
        return
    names = [_COLUMNS.get(name, name.lower().replace(" ", "_")) for name in rows[0]]
    for row in rows[1:]:
        values = {
            name: float(text) if "." in text or "e" in text else int(text)
            for name, text in zip(names, row, strict=False)
            if _NUMBER.match(text)
        }
        if values:
            yield json.dumps(values) + "\n"
