"""Reads a sample of a source's files: a bounded number of bytes, spread over files and places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any

from trainer_runtime.core.files.reading import check_reading
from trainer_runtime.core.files.regular import open_regular
from trainer_runtime.core.inputs.file_kinds import problem_of_parquet
from trainer_runtime.core.inputs.source_check import row_of_line
from trainer_runtime.core.inputs.token_files import INDEX_ENDING, TokenFileError, open_token_file
from trainmaster.runs.data.data_files import DataFile
from trainmaster.runs.data.data_sample import MOST_ROWS, Sample

MOST_BYTES = 16 << 20
_MOST_FILES = 64
_WINDOW_BYTES = 256 << 10
_LONGEST_ROW_BYTES = 2 << 20
# A row's values, counted by commas; each takes a hundred times its bytes in memory.
_MOST_VALUES = 100_000
# Of Parquet's columns, whose pages are decompressed whole; a row group says what it takes.
_LARGEST_ROW_BYTES = 1 << 20
_ROWS_AT_ONCE = 16
_LARGEST_INDEX_BYTES = 64 << 20
_SHOWN = 2000


@dataclass(slots=True)
class Counted:
    """What the files themselves say, or what the sample makes likely."""

    rows: int | None = None
    is_estimated: bool = False
    tokens: int | None = None
    note: str | None = None


def read_sample(files: Sequence[DataFile], data_format: str, sample: Sample) -> Counted:
    """Reads files of one format into `sample`.

    Raises:
        OSError: a file can't be read.
    """
    return _READERS[data_format](files, sample)


def _chosen(files: Sequence[DataFile]) -> list[DataFile]:
    """Of many files some, evenly."""
    full = [file for file in files if file.size_bytes]
    return full[:: max(1, -(-len(full) // _MOST_FILES))]


def _windows(files: Sequence[DataFile]) -> Iterator[tuple[DataFile, int, int]]:
    """Parts of the files as begin and end: whole files as far as all fit, else even windows."""
    chosen = _chosen(files)
    each = MOST_BYTES // max(1, len(chosen))
    for file in chosen:
        if file.size_bytes <= each:
            yield file, 0, file.size_bytes
            continue
        count = max(1, each // _WINDOW_BYTES)
        distance = (file.size_bytes - _WINDOW_BYTES) // max(1, count - 1)
        for number in range(count):
            begin = number * distance
            yield file, begin, min(begin + _WINDOW_BYTES, file.size_bytes)


def _read_texts(files: Sequence[DataFile], sample: Sample) -> Counted:
    for file, begin, end in _windows(files):
        with open_regular(file.path) as stream:
            stream.seek(begin)
            for start in range(begin, end, _WINDOW_BYTES):
                check_reading()
                data = stream.read(min(_WINDOW_BYTES, end - start))
                sample.read_bytes += len(data)
                is_end = start + len(data) >= file.size_bytes
                text = sample.add_bytes(data, is_begin=start == 0, is_end=is_end)
                sample.add_paragraphs(text, is_begin=start == 0, is_end=is_end)
    return Counted()


def _read_lines(files: Sequence[DataFile], sample: Sample) -> Counted:
    rows_bytes = lines = 0
    total, is_whole = sum(file.size_bytes for file in files), len(_chosen(files)) == len(files)
    for file, begin, end in _windows(files):
        if sample.is_full or sample.read_bytes >= MOST_BYTES:
            is_whole = False
            break
        is_whole = is_whole and (begin, end) == (0, file.size_bytes)
        for number, line in _lines(file.path, begin, end, sample):
            if sample.is_full:
                is_whole = False
                break
            rows_bytes += len(line)
            lines += bool(line.strip())
            _add_line(line, _place(file.path, begin, number), sample)
    if sample.is_cut:
        return Counted(note="Rows were too long to be read: how many there are is not known.")
    if is_whole:
        return Counted(lines)
    return Counted(round(total * lines / rows_bytes) if rows_bytes else None, is_estimated=True)


def _place(path: Path, begin: int, number: int) -> str:
    return f"{path.name}, line {number}" if not begin else f"{path.name}, after byte {begin}"


def _lines(path: Path, begin: int, end: int, sample: Sample) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in a part of a file, but for the first one of a later part, which may
    have begun before it."""
    with open_regular(path) as stream:
        stream.seek(begin)
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


def _read_parquet(files: Sequence[DataFile], sample: Sample) -> Counted:
    from pyarrow import ArrowException, parquet

    rows = counted = 0
    chosen = _chosen(files)
    for file in chosen:
        check_reading()
        problem = problem_of_parquet(file.path)
        if problem is not None:
            sample.add_damaged(problem)
            continue
        try:
            with parquet.ParquetFile(file.path, buffer_size=1 << 20, pre_buffer=False) as opened:
                rows, counted = rows + opened.metadata.num_rows, counted + 1
                most = max(_ROWS_AT_ONCE, MOST_ROWS // len(chosen))
                for number, row in _rows_of_parquet(opened, most):
                    _add_columns(row, f"{file.path.name}, row {number}", sample)
        except (ArrowException, OSError, ValueError, RecursionError) as error:
            sample.add_damaged(f"{file.path.name} can't be read: {error}")
    return _of_all(rows, counted, files)


def _rows_of_parquet(opened: Any, most: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The first rows, as far as they fit in memory and bytes."""
    groups, left = [], MOST_BYTES // _MOST_FILES
    for number in range(opened.metadata.num_row_groups):
        group = opened.metadata.row_group(number)
        if group.total_byte_size > _LARGEST_ROW_BYTES * max(1, group.num_rows):
            break
        groups.append(number)
    if not groups:
        return
    number = 0
    for batch in opened.iter_batches(batch_size=_ROWS_AT_ONCE, row_groups=groups):
        check_reading()
        left -= batch.nbytes
        for row in batch.to_pylist():
            number += 1
            yield number, row
        if left <= 0 or number >= most:
            return


def _read_arrow(files: Sequence[DataFile], sample: Sample) -> Counted:
    import pyarrow

    rows = counted = 0
    chosen = _chosen(files)
    most = max(_ROWS_AT_ONCE, MOST_ROWS // max(1, len(chosen)))
    for file in chosen:
        check_reading()
        try:
            with pyarrow.memory_map(str(file.path)) as mapped:
                seen = 0
                for batch in _batches(pyarrow, mapped):
                    check_reading()
                    rows += batch.num_rows
                    if seen < most:
                        part = batch.slice(0, min(most - seen, 256))
                        part.validate(full=True)
                        for row in part.to_pylist():
                            seen += 1
                            _add_columns(row, f"{file.path.name}, row {seen}", sample)
                counted += 1
        except (pyarrow.ArrowException, OSError, ValueError, RecursionError) as error:
            sample.add_damaged(f"{file.path.name} can't be read: {error}")
    return _of_all(rows, counted, files)


def _batches(pyarrow: Any, mapped: Any) -> Iterator[Any]:
    """Of a stream, as saved data sets are, or of a file."""
    try:
        yield from pyarrow.ipc.open_stream(mapped)
    except pyarrow.ArrowInvalid:
        mapped.seek(0)
        reader = pyarrow.ipc.open_file(mapped)
        yield from map(reader.get_batch, range(reader.num_record_batches))


def _of_all(rows: int, counted: int, files: Sequence[DataFile]) -> Counted:
    """The rows of all files by those of the ones that were counted."""
    if not counted:
        return Counted()
    if counted == len(files):
        return Counted(rows)
    return Counted(round(rows * len(files) / counted), is_estimated=True)


def _add_columns(row: Mapping[str, Any], place: str, sample: Sample) -> None:
    shown = dumps(row, ensure_ascii=False, default=str)
    sample.read_bytes += len(shown)
    sample.add_row(row, place, shown[:_SHOWN])


def _read_tokens(files: Sequence[DataFile], sample: Sample) -> Counted:
    total = 0
    for file in files:
        check_reading()
        index = file.path.with_suffix(INDEX_ENDING)
        if file.path.suffix == INDEX_ENDING:
            continue
        if index.is_file() and index.stat().st_size > _LARGEST_INDEX_BYTES:
            return Counted(note="Its index is too large to be read here: tokens were not counted.")
        try:
            total += open_token_file(file.path).tokens
        except TokenFileError as error:
            sample.add_damaged(str(error))
    return Counted(tokens=total)


_READERS: Mapping[str, Callable[[Sequence[DataFile], Sample], Counted]] = {
    "text": _read_texts,
    "jsonl": _read_lines,
    "parquet": _read_parquet,
    "arrow": _read_arrow,
    "tokens": _read_tokens,
}
