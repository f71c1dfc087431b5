"""Reads a sample of a source's files: a bounded number of bytes, spread over files and places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from trainer_runtime.core.files.compression import (
    CompressedFileError,
    SourceFile,
    compression_of,
)
from trainer_runtime.core.files.reading import check_reading
from trainer_runtime.core.inputs.source_check import row_of_line
from trainer_runtime.core.inputs.token_files import INDEX_ENDING, TokenFileError, open_token_file
from trainmaster.runs.data.column_sample import read_columns
from trainmaster.runs.data.data_files import DataFile
from trainmaster.runs.data.data_sample import MOST_BYTES, Counted, Sample, chosen_files

_WINDOW_BYTES = 256 << 10
_LONGEST_ROW_BYTES = 2 << 20
# A row's values, counted by commas; each takes a hundred times its bytes in memory.
_MOST_VALUES = 100_000


def read_sample(files: Sequence[DataFile], data_format: str, sample: Sample) -> Counted:
    """Reads files of one format into `sample`.

    Raises:
        OSError: a file can't be read.
    """
    return _READERS[data_format](files, sample)


@dataclass(slots=True)
class _Held:
    """How many bytes the files hold: of compressed ones by the parts of them that were read."""

    files: Sequence[DataFile]
    size_bytes: int = 0
    plain_bytes: int = 0
    _compressed: set[Path] = field(default_factory=set)

    def add(self, file: DataFile, opened: SourceFile) -> None:
        if opened.method is not None:
            self._compressed.add(file.path)
            self.size_bytes += file.size_bytes
            self.plain_bytes += opened.plain_bytes

    @property
    def total_bytes(self) -> int:
        total = sum(file.size_bytes for file in self.files)
        if not self._compressed:
            return total
        # Files that were not read are taken to be compressed as those of the same ending are.
        endings = {path.suffix for path in self._compressed}
        packed = sum(file.size_bytes for file in self.files if file.path.suffix in endings)
        return total - packed + packed * self.plain_bytes // max(1, self.size_bytes)


def _windows(files: Sequence[DataFile]) -> Iterator[tuple[DataFile, int, int]]:
    """Parts of the files as begin and end: whole files as far as all fit, else even windows; of
    compressed files, which can be read from the begin alone, that."""
    chosen = chosen_files(files)
    each = MOST_BYTES // max(1, len(chosen))
    for file in chosen:
        if compression_of(file.path) is not None:
            yield file, 0, each
            continue
        if file.size_bytes <= each:
            yield file, 0, file.size_bytes
            continue
        count = max(1, each // _WINDOW_BYTES)
        distance = (file.size_bytes - _WINDOW_BYTES) // max(1, count - 1)
        for number in range(count):
            begin = number * distance
            yield file, begin, min(begin + _WINDOW_BYTES, file.size_bytes)


@contextmanager
def _part(file: DataFile, begin: int, sample: Sample, held: _Held) -> Iterator[SourceFile]:
    """The file, to be read from `begin` on; why it can't be decompressed is noted."""
    try:
        with SourceFile(file.path) as opened:
            if begin:
                opened.text.seek(begin)
            try:
                yield opened
            finally:
                held.add(file, opened)
    except CompressedFileError as error:
        sample.add_damaged(str(error).replace(f"{file.path}", file.path.name))


def _read_texts(files: Sequence[DataFile], sample: Sample) -> Counted:
    held = _Held(files)
    for file, begin, end in _windows(files):
        with _part(file, begin, sample, held) as opened:
            for start in range(begin, end, _WINDOW_BYTES):
                check_reading()
                data = opened.text.read(min(_WINDOW_BYTES, end - start))
                sample.read_bytes += len(data)
                is_end = not opened.text.peek(1)
                text = sample.add_bytes(data, is_begin=start == 0, is_end=is_end)
                sample.add_paragraphs(text, is_begin=start == 0, is_end=is_end)
                if is_end:
                    break
    return Counted(held_bytes=held.total_bytes)


def _read_lines(files: Sequence[DataFile], sample: Sample) -> Counted:
    rows_bytes = lines = 0
    held, is_whole = _Held(files), len(chosen_files(files)) == len(files)
    for file, begin, end in _windows(files):
        if sample.is_full or sample.read_bytes >= MOST_BYTES:
            is_whole = False
            break
        is_read = False
        with _part(file, begin, sample, held) as opened:
            for number, line in _lines(opened, file.path, (begin, end), sample):
                if sample.is_full:
                    break
                rows_bytes += len(line)
                lines += bool(line.strip())
                _add_line(line, _place(file.path, begin, number), sample)
            else:
                is_read = not begin and not opened.text.peek(1)
        is_whole = is_whole and is_read
    if sample.is_cut:
        return Counted(note="Rows were too long to be read: how many there are is not known.")
    if is_whole:
        return Counted(lines)
    if not rows_bytes:
        return Counted(is_estimated=True)
    return Counted(round(held.total_bytes * lines / rows_bytes), is_estimated=True)


def _place(path: Path, begin: int, number: int) -> str:
    return f"{path.name}, line {number}" if not begin else f"{path.name}, after byte {begin}"


def _lines(
    opened: SourceFile, path: Path, part: tuple[int, int], sample: Sample
) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in a part of a file, but for the first one of a later part, which may
    have begun before it."""
    (begin, end), stream = part, opened.text
    at, number = begin, 0
    if begin:
        skipped = stream.readline(_LONGEST_ROW_BYTES)
        sample.read_bytes += len(skipped)
        at += len(skipped)
        if not skipped.endswith(b"\n"):
            return
    while at < end and sample.read_bytes < MOST_BYTES:
        check_reading()
        line = stream.readline(_LONGEST_ROW_BYTES + 1)
        if not line:
            return
        at, number = at + len(line), number + 1
        sample.read_bytes += len(line)
        if len(line) > _LONGEST_ROW_BYTES:
            longest = _LONGEST_ROW_BYTES >> 20
            sample.is_cut = True
            sample.add_damaged(
                f"{_place(path, begin, number)}: over {longest} MiB long, and not read"
            )
            return
        yield number, line


def _add_line(line: bytes, place: str, sample: Sample) -> None:
    text = sample.add_bytes(line, is_begin=place.endswith(", line 1"), is_end=True)
    if not line.strip():
        return
    values = line.count(b",")
    sample.values += values
    too_many = f"it holds over {_MOST_VALUES:,} values, and was not read"
    row = row_of_line(line) if values <= _MOST_VALUES else too_many
    if isinstance(row, str):
        sample.add_damaged(f"{place}: {row}")
    else:
        sample.add_row(row, place, text.strip())


def _read_tokens(files: Sequence[DataFile], sample: Sample) -> Counted:
    total = 0
    for file in files:
        check_reading()
        if file.path.suffix == INDEX_ENDING:
            continue
        try:
            total += open_token_file(file.path).tokens
        except TokenFileError as error:
            sample.add_damaged(str(error))
    return Counted(tokens=total)


_READERS: Mapping[str, Callable[[Sequence[DataFile], Sample], Counted]] = {
    "text": _read_texts,
    "jsonl": _read_lines,
    "parquet": partial(read_columns, "parquet"),
    "arrow": partial(read_columns, "arrow"),
    "tokens": _read_tokens,
}
