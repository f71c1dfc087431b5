"""The texts of a source, one after another, whatever they are stored in; memory stays bounded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import (
    MAX_DOCUMENT_BYTES,
    MAX_ROW_DEPTH,
    DecodingError,
    decode_value,
)
from trainer_runtime.core.inputs.utf8_text import (
    Utf8Text,
    another_encoding,
    is_another_encoding,
)
from trainer_runtime.train.attempt.config import ConfigError, SourceConfig

COLUMN = "text"
PIECE_CHARACTERS = 64 << 10
_ROWS_AT_ONCE = 256

# The next piece of a text, whether the text ends with it, and which share of the source is read.
Piece = tuple[str, bool, float]


def pieces(source: SourceConfig, files: Sequence[str]) -> Iterator[Piece]:
    """A source's texts in pieces of at most 64 Ki characters, cut at white space where there is.

    Raises:
        ConfigError: a file can't be read, or has no texts where they should be.
    """
    read = _READERS.get(source.format)
    if read is None:
        raise ConfigError(
            f"data source {source.name}: format {source.format} holds no running text; "
            f"data.sources[].format takes one of {', '.join(_READERS)} here"
        )
    name = source.name
    try:
        for text, ends, share in read(source, files):
            yield from cut(text, ends, share)
    except ImportError as error:
        raise ConfigError(
            f"data source {name}: {source.format} takes the package {error.name}, which the "
            "environment lacks; add it by environment.requirements"
        ) from None
    except (OSError, ValueError, KeyError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigError(f"data source {name}: {reason}") from None


def cut(text: str, ends: bool, share: float) -> Iterator[Piece]:
    """A text in pieces; `ends`: whether it ends with the last one."""
    start = 0
    while len(text) - start > PIECE_CHARACTERS:
        stop = _boundary(text, start, start + PIECE_CHARACTERS)
        yield text[start:stop], False, share
        start = stop
    yield text[start:], ends, share


def _boundary(text: str, start: int, stop: int) -> int:
    """Before the last space or behind the last line, where tokens end too; else `stop`."""
    boundary = max(text.rfind(" ", start + 1, stop), text.rfind("\n", start, stop) + 1)
    return boundary if boundary > start else stop


def _of_text(source: SourceConfig, files: Sequence[str]) -> Iterator[Piece]:
    total, done, undecodable = _total_bytes(files), 0, 0
    for file in files:
        decoder = Utf8Text()
        held = ""
        with open(file, "rb") as stream:
            while data := stream.read(PIECE_CHARACTERS):
                done += len(data)
                text = held + decoder.decode(data)
                stop = _boundary(text, 0, len(text))
                held = text[stop:]
                _refuse_another_encoding(file, undecodable + decoder.undecodable, total)
                yield text[:stop], False, done / total
        rest = held + decoder.decode(b"", final=True)
        undecodable += decoder.undecodable
        _refuse_another_encoding(file, undecodable, total)
        yield rest, True, done / total
    if undecodable:
        print(
            f"{source.name}: {undecodable:,} of {total:,} bytes are not UTF-8 and stand as U+FFFD",
            flush=True,
        )


def _refuse_another_encoding(file: str, undecodable: int, total_bytes: int) -> None:
    if is_another_encoding(undecodable, total_bytes):
        raise ValueError(another_encoding(file, undecodable, total_bytes))


def _of_jsonl(source: SourceConfig, files: Sequence[str]) -> Iterator[Piece]:
    total, done = _total_bytes(files), 0
    for file in files:
        with open(file, "rb") as stream:
            for number, line in enumerate(stream, start=1):
                done += len(line)
                if line.strip():
                    yield _text_of(line, file, number), True, done / total


def _text_of(line: bytes, file: str, number: int) -> str:
    try:
        row = decode_value(line, file, max_bytes=MAX_DOCUMENT_BYTES, max_depth=MAX_ROW_DEPTH)
    except DecodingError as error:
        raise ValueError(f"{file}, line {number} {error.problem}") from None
    text = row.get(COLUMN) if isinstance(row, dict) else None
    if not isinstance(text, str):
        raise ValueError(f"{file}, line {number} has no text under `{COLUMN}`")
    return text


def _of_parquet(source: SourceConfig, files: Sequence[str]) -> Iterator[Piece]:
    from pyarrow import parquet

    total, done = _total_bytes(files), 0
    for file in files:
        opened = parquet.ParquetFile(file)
        _require_column(opened.schema_arrow.names, file)
        size, rows, read = Path(file).stat().st_size, max(1, opened.metadata.num_rows), 0
        for batch in opened.iter_batches(batch_size=_ROWS_AT_ONCE, columns=[COLUMN]):
            read += batch.num_rows
            for text in batch.column(0).to_pylist():
                yield str(text or ""), True, (done + size * read / rows) / total
        done += size


def _of_arrow(source: SourceConfig, files: Sequence[str]) -> Iterator[Piece]:
    import pyarrow

    total, done = _total_bytes(files), 0
    for file in files:
        with pyarrow.memory_map(file) as mapped:
            reader = _arrow_reader(pyarrow, mapped)
            _require_column(reader.schema.names, file)
            for batch in _batches(reader):
                column = batch.column(batch.schema.get_field_index(COLUMN))
                for start in range(0, len(column), _ROWS_AT_ONCE):
                    for text in column.slice(start, _ROWS_AT_ONCE).to_pylist():
                        yield str(text or ""), True, (done + mapped.seek(0, os.SEEK_CUR)) / total
        done += Path(file).stat().st_size


def _arrow_reader(pyarrow: Any, mapped: Any) -> Any:
    """Streams, as `datasets` writes them, or files, as others do."""
    try:
        return pyarrow.ipc.open_stream(mapped)
    except pyarrow.ArrowInvalid:
        mapped.seek(0)
        return pyarrow.ipc.open_file(mapped)


def _batches(reader: Any) -> Iterator[Any]:
    if hasattr(reader, "num_record_batches"):
        return (reader.get_batch(number) for number in range(reader.num_record_batches))
    return iter(reader)


def _of_saved(source: SourceConfig, files: Sequence[str]) -> Iterator[Piece]:
    import datasets

    rows = datasets.load_from_disk(source.path)
    if isinstance(rows, datasets.DatasetDict):
        if "train" not in rows:
            raise ValueError(f"{source.path} holds {', '.join(rows)}, but no train split")
        rows = rows["train"]
    _require_column(rows.column_names, source.path)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        for text in rows[start : start + _ROWS_AT_ONCE][COLUMN]:
            yield str(text or ""), True, min(1.0, (start + _ROWS_AT_ONCE) / len(rows))


def _require_column(names: Sequence[str], file: str) -> None:
    if COLUMN not in names:
        raise ValueError(f"{file} has no column `{COLUMN}`, but {', '.join(names)}")


def _total_bytes(files: Sequence[str]) -> int:
    return max(1, sum(Path(file).stat().st_size for file in files))


_READERS: dict[str, Callable[[SourceConfig, Sequence[str]], Iterator[Piece]]] = {
    "text": _of_text,
    "jsonl": _of_jsonl,
    "parquet": _of_parquet,
    "arrow": _of_arrow,
    "hf": _of_saved,
}
