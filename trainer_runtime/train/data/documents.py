"""The texts of a source, one after another, whatever they are stored in; memory stays bounded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import (
    MAX_DOCUMENT_BYTES,
    MAX_ROW_DEPTH,
    DecodingError,
    decode_value,
)
from trainer_runtime.core.files.compression import SourceFile
from trainer_runtime.core.files.corpus import SHARD_FORMATS
from trainer_runtime.core.inputs.bad_rows import BadRows
from trainer_runtime.core.inputs.shard_rows import shard_rows
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


def pieces(
    source: SourceConfig, files: Sequence[str], counted: BadRows | None = None
) -> Iterator[Piece]:
    """A source's texts in pieces of at most 64 Ki characters, cut at white space where there is.

    `counted`: the rows so far, to which these are added; None where none may be bad.

    Raises:
        ConfigError: a file can't be read, or has no texts where they should be.
    """
    read = _READERS.get(source.format)
    if read is None:
        raise ConfigError(
            f"data source {source.name}: format {source.format} holds no running text; "
            f"data.sources[].format takes one of {', '.join(_READERS)} here"
        )
    with explained(source.name):
        for text, ends, share in read(source, files, counted or BadRows(0.0)):
            yield from cut(text, ends, share)


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Makes a `ConfigError` that names the source of what readers raise."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"data source {name}: it takes the package {error.name}, which the environment lacks; "
            "add it by environment.requirements"
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


def _of_text(source: SourceConfig, files: Sequence[str], _: BadRows) -> Iterator[Piece]:
    progress, undecodable = ReadProgress(files), 0
    for file in files:
        decoder = Utf8Text()
        held = ""
        with SourceFile(Path(file)) as opened:
            while data := opened.text.read(PIECE_CHARACTERS):
                progress.read(len(data), opened)
                text = held + decoder.decode(data)
                stop = _boundary(text, 0, len(text))
                held = text[stop:]
                bad = undecodable + decoder.undecodable
                _refuse_another_encoding(file, bad, progress.total_held)
                yield text[:stop], False, progress.share
            progress.end(opened)
        rest = held + decoder.decode(b"", final=True)
        undecodable += decoder.undecodable
        _refuse_another_encoding(file, undecodable, progress.total_held)
        yield rest, True, progress.share
    if undecodable:
        print(
            f"{source.name}: {undecodable:,} of {progress.held:,} bytes are not UTF-8 and stand as "
            "U+FFFD",
            flush=True,
        )


class ReadProgress:
    """How far a source's files are read; of compressed ones what they hold in all is estimated by
    what was read."""

    def __init__(self, files: Sequence[str]) -> None:
        self._total = max(1, sum(Path(file).stat().st_size for file in files))
        self._before = self._here = 0
        self.held = 0

    def read(self, size_bytes: int, opened: SourceFile) -> None:
        """So many bytes more were read of what the file holds."""
        self.held += size_bytes
        if opened.method is None:
            self._here += size_bytes
        else:
            self._here = opened.read_bytes

    def end(self, opened: SourceFile) -> None:
        """The file is read to its end."""
        self._before += opened.size_bytes
        self._here = 0

    @property
    def share(self) -> float:
        return min(1.0, (self._before + self._here) / self._total)

    @property
    def total_held(self) -> int:
        """About how many bytes all files hold."""
        return max(self.held, int(self.held / self.share)) if self.share else self.held


def _refuse_another_encoding(file: str, undecodable: int, total_bytes: int) -> None:
    if is_another_encoding(undecodable, total_bytes):
        raise ValueError(another_encoding(file, undecodable, total_bytes))


def _of_jsonl(source: SourceConfig, files: Sequence[str], counted: BadRows) -> Iterator[Piece]:
    progress = ReadProgress(files)
    for file in files:
        with SourceFile(Path(file)) as opened:
            for number, line in _lines(opened):
                progress.read(len(line), opened)
                if not line.strip():
                    continue
                text, problem = text_of(line)
                counted.add(None if problem is None else f"{file}, line {number} {problem}")
                if text is None:
                    _refuse(counted.refusal(progress.total_held - progress.held))
                else:
                    yield text, True, progress.share
            progress.end(opened)
    _refuse(counted.refusal())


def _of_shards(source: SourceConfig, files: Sequence[str], counted: BadRows) -> Iterator[Piece]:
    total, done = _total_bytes(files), 0
    for file in files:
        for number, row in enumerate(shard_rows(Path(file), source.format)):
            text = row.get(COLUMN)
            is_text = isinstance(text, str)
            counted.add(None if is_text else f"{file}, row {number} has no text under `{COLUMN}`")
            if isinstance(text, str):
                yield text, True, done / total
            else:
                _refuse(counted.refusal(total - done))
        done += Path(file).stat().st_size
    _refuse(counted.refusal())


def _lines(opened: SourceFile) -> Iterator[tuple[int, bytes]]:
    """The lines with their numbers; of one that is longer than any row, its begin."""
    number, within = 0, False
    while line := opened.text.readline(MAX_DOCUMENT_BYTES + 1):
        if not within:
            number += 1
            yield number, line
        within = not line.endswith(b"\n")


def _refuse(problem: str | None) -> None:
    if problem is not None:
        raise ValueError(problem)


def text_of(line: bytes) -> tuple[str | None, str | None]:
    """A row's text, or what is wrong with the row."""
    try:
        row = decode_value(line, "row", max_bytes=MAX_DOCUMENT_BYTES, max_depth=MAX_ROW_DEPTH)
    except DecodingError as error:
        return None, error.problem
    text = row.get(COLUMN) if isinstance(row, dict) else None
    if not isinstance(text, str):
        return None, f"has no text under `{COLUMN}`"
    return text, None


def _of_parquet(source: SourceConfig, files: Sequence[str], counted: BadRows) -> Iterator[Piece]:
    from pyarrow import parquet

    total, done = _total_bytes(files), 0
    for file in files:
        opened = parquet.ParquetFile(file)
        require_column(opened.schema_arrow.names, file)
        size, rows, read = Path(file).stat().st_size, max(1, opened.metadata.num_rows), 0
        for batch in opened.iter_batches(batch_size=_ROWS_AT_ONCE, columns=[COLUMN]):
            texts = _good(batch.column(0).to_pylist(), file, read, counted)
            read += batch.num_rows
            for text in texts:
                yield text, True, (done + size * read / rows) / total
        done += size
    _refuse(counted.refusal())


def _good(values: Sequence[object], file: str, before: int, counted: BadRows) -> Sequence[str]:
    """The texts among a column's values, of which so many stand `before` these; the others are
    counted."""
    for number, value in enumerate(values, before + 1):
        is_text = isinstance(value, str)
        counted.add(None if is_text else f"{file}, row {number} has no text under `{COLUMN}`")
    return [value for value in values if isinstance(value, str)]


def _of_arrow(source: SourceConfig, files: Sequence[str], counted: BadRows) -> Iterator[Piece]:
    import pyarrow

    total, done = _total_bytes(files), 0
    for file in files:
        read = 0
        with pyarrow.memory_map(file) as mapped:
            reader = arrow_reader(pyarrow, mapped)
            require_column(reader.schema.names, file)
            for batch in record_batches(reader):
                column = batch.column(batch.schema.get_field_index(COLUMN))
                for start in range(0, len(column), _ROWS_AT_ONCE):
                    values = column.slice(start, _ROWS_AT_ONCE).to_pylist()
                    for text in _good(values, file, read + start, counted):
                        yield text, True, (done + mapped.seek(0, os.SEEK_CUR)) / total
                read += len(column)
        done += Path(file).stat().st_size
    _refuse(counted.refusal())


def arrow_reader(pyarrow: Any, mapped: Any) -> Any:
    """Streams, as `datasets` writes them, or files, as others do."""
    try:
        return pyarrow.ipc.open_stream(mapped)
    except pyarrow.ArrowInvalid:
        mapped.seek(0)
        return pyarrow.ipc.open_file(mapped)


def record_batches(reader: Any) -> Iterator[Any]:
    if hasattr(reader, "num_record_batches"):
        return (reader.get_batch(number) for number in range(reader.num_record_batches))
    return iter(reader)


def _of_saved(source: SourceConfig, files: Sequence[str], counted: BadRows) -> Iterator[Piece]:
    import datasets

    rows = datasets.load_from_disk(source.path)
    if isinstance(rows, datasets.DatasetDict):
        if "train" not in rows:
            raise ValueError(f"{source.path} holds {', '.join(rows)}, but no train split")
        rows = rows["train"]
    require_column(rows.column_names, source.path)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        values = rows[start : start + _ROWS_AT_ONCE][COLUMN]
        for text in _good(values, source.path, start, counted):
            yield text, True, min(1.0, (start + _ROWS_AT_ONCE) / len(rows))
    _refuse(counted.refusal())


def require_column(names: Sequence[str], file: str) -> None:
    if COLUMN not in names:
        raise ValueError(f"{file} has no column `{COLUMN}`, but {', '.join(names)}")


def _total_bytes(files: Sequence[str]) -> int:
    return max(1, sum(Path(file).stat().st_size for file in files))


_READERS: dict[str, Callable[[SourceConfig, Sequence[str], BadRows], Iterator[Piece]]] = {
    "text": _of_text,
    "jsonl": _of_jsonl,
    "parquet": _of_parquet,
    "arrow": _of_arrow,
    "hf": _of_saved,
    **dict.fromkeys(SHARD_FORMATS, _of_shards),
}
