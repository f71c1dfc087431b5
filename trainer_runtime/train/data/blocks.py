"""A source's texts by block, so that a stream can be shuffled and can seek without reading it all.

A section of a source is read by itself, whatever its number: byte ranges of text and JSON lines,
each beginning behind a line's end; row groups of Parquet; record batches of Arrow; rows of a saved
data set. Small ones that follow each other are one section. A file that can't be entered anywhere
else than at its begin (a compressed one, other formats) is a section as a whole. A block is what of
a section is tokenized at once: nearly always all of it, of a large one a part after another.

Sections and blocks depend on the files and on `block_bytes` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES
from trainer_runtime.core.files.compression import compression_of
from trainer_runtime.core.files.corpus import TEXT
from trainer_runtime.core.files.regular import open_regular
from trainer_runtime.core.inputs.bad_rows import BadRows
from trainer_runtime.core.inputs.utf8_text import Utf8Text, another_encoding, is_another_encoding
from trainer_runtime.train.attempt.config import SourceConfig
from trainer_runtime.train.data.documents import (
    COLUMN,
    arrow_reader,
    cut,
    explained,
    pieces,
    record_batches,
    require_column,
    text_of,
)
from trainer_runtime.train.data.rows import files_of, saved_rows

# Sections are listed when a stream is opened: of larger sources, blocks are larger.
_MOST_SECTIONS = 1 << 18
_LEAST_BYTES = 256 << 10
# A window's rest at a block's end is dropped: on average one in two hundred and fifty tokens.
_WINDOWS_OF_A_BLOCK = 64
_BYTES_OF_A_TOKEN = 4
_ROWS_AT_ONCE = 256
# How far behind a nominal border of text a line may end.
_LINE_SEARCH_BYTES = 64 << 10
_LINE_PIECE_BYTES = 1 << 20

# A piece of a text, and whether the text ends with it.
Text = tuple[str, bool]
# Of a file, from where to where: bytes, row groups, record batches, rows; None is its end.
Part = tuple[str, int, "int | None"]
_Sized = tuple[Part, float]
_Read = Callable[[Part, BadRows], Iterator[Text]]


class Blocks:
    """A source's sections by number, and the blocks of each."""

    def __init__(self, source: SourceConfig, seq_len: int, bad_rows: float = 0.0) -> None:
        """`bad_rows`: the share of the source's rows that may be skipped.

        Raises:
            ConfigError: its files can't be listed or read.
        """
        self._name = source.name
        with explained(source.name):
            reader = _of_saved(source) if source.format == "hf" else _of_files(source)
            least = max(_LEAST_BYTES, seq_len * _WINDOWS_OF_A_BLOCK * _BYTES_OF_A_TOKEN)
            self._block_bytes = max(least, reader.size_bytes // _MOST_SECTIONS)
            self._read = reader.read
            self._sections = list(_grouped(reader.parts(self._block_bytes), self._block_bytes))
        parts = sum(map(len, self._sections))
        self._bad_rows = _BadRowsOfParts(source.name, bad_rows, parts, reader.size_bytes)

    def __len__(self) -> int:
        """How many sections there are."""
        return len(self._sections)

    def read(self, section: int, first: int = 0) -> Iterator[list[Text]]:
        """The blocks of a section from its `first` on; what comes before in it may have to be read
        as well, and is not kept.

        Raises:
            ConfigError: a file can't be read, or has no texts where they should be.
        """
        with explained(self._name):
            texts = (text for part in self._sections[section] for text in self._texts(part))
            yield from islice(_blocks(texts, 2 * self._block_bytes), first, None)

    def _texts(self, part: Part) -> Iterator[Text]:
        counted = BadRows(1.0)
        yield from self._read(part, counted)
        self._bad_rows.add(part, counted)


class _BadRowsOfParts:
    """Rows that can't be read, over all parts of a source, each counted once."""

    def __init__(self, name: str, share: float, parts: int, total_bytes: int) -> None:
        self._name, self._parts, self._total_bytes = name, parts, total_bytes
        self._read: set[Part] = set()
        self._counted = BadRows(share)

    def add(self, part: Part, counted: BadRows) -> None:
        """Count what a part had.

        Raises:
            ValueError: the source has too many, whatever the parts hold that weren't read yet.
        """
        if part in self._read:
            return
        self._read.add(part)
        total = self._counted
        total.rows += counted.rows
        total.bad += counted.bad
        total.first = total.first or counted.first
        refusal = total.refusal(self._total_bytes * (1 - len(self._read) / self._parts))
        if refusal is not None:
            raise ValueError(refusal)
        if counted.bad:
            print(f"{self._name}: {total.report()}", flush=True)


def _blocks(texts: Iterator[Text], size: int) -> Iterator[list[Text]]:
    """Texts together up to `size` characters, which never are more than their bytes."""
    block: list[Text] = []
    held = 0
    for text, ends in texts:
        for piece, is_end, _ in cut(text, ends, 0.0):
            block.append((piece, is_end))
            held += len(piece) + 1
            if held >= size:
                yield block
                block, held = [], 0
    if block:
        yield block


def _grouped(parts: Iterator[_Sized], size: int) -> Iterator[tuple[Part, ...]]:
    """Neighbours together up to `size` bytes."""
    group: list[Part] = []
    held = 0.0
    for part, size_bytes in parts:
        if group and held + size_bytes > size:
            yield tuple(group)
            group, held = [], 0.0
        group.append(part)
        held += size_bytes
    if group:
        yield tuple(group)


class _Reader:
    """The parts of a source, about `block_bytes` each where they can be so small, and the texts of
    one."""

    def __init__(
        self, size_bytes: int, parts: Callable[[int], Iterator[_Sized]], read: _Read
    ) -> None:
        self.size_bytes, self.parts, self.read = size_bytes, parts, read


def _of_files(source: SourceConfig) -> _Reader:
    files = [(file, Path(file).stat().st_size) for file in files_of(source)]
    total_bytes = sum(size_bytes for _, size_bytes in files)
    readers: dict[str, tuple[Callable[[str, int, int], Iterator[_Sized]], _Read]] = {
        TEXT: (_byte_ranges, _TextReader(total_bytes)),
        "jsonl": (_byte_ranges, _lines),
        "parquet": (_row_groups, _of_parquet),
        "arrow": (_batches, _of_arrow),
    }
    enter, read = readers.get(source.format, (_whole, None))

    def parts(block_bytes: int) -> Iterator[_Sized]:
        for file, size_bytes in files:
            is_entered = enter is not _byte_ranges or compression_of(Path(file)) is None
            yield from (enter if is_entered else _whole)(file, size_bytes, block_bytes)

    def texts(part: Part, counted: BadRows) -> Iterator[Text]:
        file, _, stop = part
        if read is not None and stop != 0:
            return read(part, counted)
        return ((text, ends) for text, ends, _ in pieces(source, [file], counted))

    return _Reader(total_bytes, parts, texts)


def _whole(file: str, size_bytes: int, block_bytes: int) -> Iterator[_Sized]:
    """To be read by `pieces`: the part has no end of its own."""
    yield (file, 0, 0), max(size_bytes, block_bytes)


def _byte_ranges(file: str, size_bytes: int, block_bytes: int) -> Iterator[_Sized]:
    count = max(1, round(size_bytes / block_bytes))
    for number in range(count):
        start, stop = (size_bytes * at // count for at in (number, number + 1))
        yield (file, start, None if number == count - 1 else stop), stop - start


def _row_groups(file: str, _: int, __: int) -> Iterator[_Sized]:
    from pyarrow import parquet

    opened = parquet.ParquetFile(file)
    require_column(opened.schema_arrow.names, file)
    for group in range(opened.num_row_groups):
        yield (file, group, group + 1), opened.metadata.row_group(group).total_byte_size


def _batches(file: str, _: int, __: int) -> Iterator[_Sized]:
    import pyarrow

    with pyarrow.memory_map(file) as mapped:
        reader = arrow_reader(pyarrow, mapped)
        require_column(reader.schema.names, file)
        for number, batch in enumerate(record_batches(reader)):
            yield (file, number, number + 1), batch.nbytes


class _TextReader:
    """Reads byte ranges of text; bytes that can't be decoded are counted over all of them."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._undecodable: dict[Part, int] = {}

    def __call__(self, part: Part, _: BadRows) -> Iterator[Text]:
        file, start, stop = part
        with open_regular(Path(file)) as opened:
            begin = _border(opened, start)
            end = None if stop is None else _border(opened, stop)
            opened.seek(begin)
            decoder = Utf8Text()
            text = decoder.decode(opened.read(-1 if end is None else end - begin), final=True)
        if decoder.undecodable:
            self._undecodable[part] = decoder.undecodable
            undecodable = sum(self._undecodable.values())
            if is_another_encoding(undecodable, self._total_bytes):
                raise ValueError(another_encoding(file, undecodable, self._total_bytes))
        yield text, stop is None


def _border(opened: BinaryIO, nominal: int) -> int:
    """Behind the first line that ends at `nominal` or later; where none does soon, before the next
    character."""
    if nominal == 0:
        return 0
    opened.seek(nominal - 1)
    data = opened.read(_LINE_SEARCH_BYTES)
    at = data.find(b"\n")
    if at < 0:
        at = next((n for n in range(len(data) - 1) if data[n + 1] & 0xC0 != 0x80), len(data) - 1)
    return nominal + at


def _lines(part: Part, counted: BadRows) -> Iterator[Text]:
    """The rows whose lines begin in a byte range."""
    file, start, stop = part
    with open_regular(Path(file)) as opened:
        at = _behind_the_line(opened, start - 1) if start else 0
        while stop is None or at < stop:
            line = opened.readline(MAX_DOCUMENT_BYTES + 1)
            if not line:
                return
            if line.strip():
                text, problem = text_of(line)
                counted.add(problem and f"{file}, the line at byte {at:,} {problem}")
                if text is not None:
                    yield text, True
            at += len(line)


def _behind_the_line(opened: BinaryIO, at: int) -> int:
    opened.seek(at)
    while data := opened.readline(_LINE_PIECE_BYTES):
        at += len(data)
        if data.endswith(b"\n"):
            break
    return at


def _of_parquet(part: Part, counted: BadRows) -> Iterator[Text]:
    from pyarrow import parquet

    file, start, stop = part
    read = parquet.ParquetFile(file).iter_batches(
        batch_size=_ROWS_AT_ONCE, columns=[COLUMN], row_groups=list(range(start, stop or start))
    )
    for batch in read:
        place = f"{file}, a row of row group {start}"
        yield from _texts(batch.column(0).to_pylist(), place, counted)


def _of_arrow(part: Part, counted: BadRows) -> Iterator[Text]:
    import pyarrow

    file, start, stop = part
    with pyarrow.memory_map(file) as mapped:
        reader = arrow_reader(pyarrow, mapped)
        for batch in islice(record_batches(reader), start, stop):
            column = batch.column(batch.schema.get_field_index(COLUMN))
            for first in range(0, len(column), _ROWS_AT_ONCE):
                rows = column.slice(first, _ROWS_AT_ONCE).to_pylist()
                yield from _texts(rows, f"{file}, a row of batch {start}", counted)


def _of_saved(source: SourceConfig) -> _Reader:
    rows = saved_rows(source)
    require_column(rows.column_names, source.path)
    size_bytes = max(1, rows.data.nbytes)

    def parts(block_bytes: int) -> Iterator[_Sized]:
        together = max(1, len(rows) * block_bytes // size_bytes)
        for start in range(0, len(rows), together):
            yield (source.path, start, start + together), block_bytes

    def read(part: Part, counted: BadRows) -> Iterator[Text]:
        path, start, stop = part
        for first in range(start, min(stop or start, len(rows)), _ROWS_AT_ONCE):
            texts = rows[first : min(first + _ROWS_AT_ONCE, stop or 0)][COLUMN]
            yield from _texts(texts, f"{path}, a row from {first:,} on", counted)

    return _Reader(size_bytes, parts, read)


def _texts(values: Sequence[Any], place: str, counted: BadRows) -> Iterator[Text]:
    for text in values:
        if isinstance(text, str):
            counted.add(None)
            yield text, True
        else:
            counted.add(f"{place} has no text under `{COLUMN}`")
