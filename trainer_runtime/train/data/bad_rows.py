"""Rows that a method can't learn from, left out where `datasets` reads a source.

The preparation checks every row once and notes the bad ones in the cache, beside what `datasets`
keeps there. `datasets` stops at a line that is not JSON, or at a value of another type, so that of
JSON lines with bad rows a copy without these is made; of other formats the rows' numbers are kept.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES
from trainer_runtime.core.files.compression import SourceFile
from trainer_runtime.core.inputs.bad_rows import BadRows
from trainer_runtime.core.inputs.row_form import learnt_columns, problem_of_row
from trainer_runtime.core.inputs.source_check import row_of_line
from trainer_runtime.train.data.documents import ReadProgress

_ROWS_AT_ONCE = 256


def good_files(folder: Path) -> list[str]:
    """The copies that hold the good rows of a source of JSON lines; none where every row is good,
    and of other formats."""
    return sorted(map(str, folder.glob("*.jsonl")))


def good_rows(folder: Path, split: str, rows: Any) -> Any:
    """A split's rows, of a `datasets.Dataset`, without those that the preparation noted."""
    noted = folder / _numbers_name(split)
    if not noted.exists():
        return rows
    is_good = numpy.ones(len(rows), dtype=bool)
    is_good[numpy.load(noted)] = False
    return rows.select(numpy.flatnonzero(is_good))


class RowCheck:
    """Checks a source's rows, and counts the bad ones."""

    def __init__(self, kind: str, counted: BadRows) -> None:
        self._kind, self._counted = kind, counted
        self._columns = learnt_columns(kind)
        self._there: set[str] | None = None

    def is_bad(self, row: Mapping[str, Any] | str, place: str) -> bool:
        """Whether a row, or what stands instead of one, can't be learnt from."""
        problem = row if isinstance(row, str) else problem_of_row(self._kind, row)
        if problem is None and not isinstance(row, str):
            there = {name for name in self._columns if row.get(name) is not None}
            self._there = self._there or there
            if there != self._there:
                named = ", ".join(f"`{name}`" for name in sorted(there ^ self._there))
                problem = f"it differs from the first row in having {named}"
        self._counted.add(None if problem is None else f"{place}: {problem}")
        return problem is not None


def leave_out_of_lines(files: Sequence[str], kind: str, folder: Path, share: float) -> BadRows:
    """Note the bad rows of JSON lines in `folder`, with a copy of the good ones if there are any.

    Raises:
        ValueError: there are more than the share of all; a compressed file is damaged.
        OSError: a file can't be read, or the copy not be written.
    """
    counted = BadRows(share)
    check, progress = RowCheck(kind, counted), ReadProgress(files)
    bad: dict[str, set[int]] = {}
    for file in files:
        with SourceFile(Path(file)) as opened:
            for number, line in _lines(opened):
                progress.read(len(line), opened)
                if check.is_bad(row_of_line(line), f"{file}, line {number}"):
                    bad.setdefault(file, set()).add(number)
                    _refuse(counted.refusal(progress.total_held - progress.held))
            progress.end(opened)
    _refuse(counted.refusal())
    if counted.bad:
        building = _building(folder)
        for place, file in enumerate(files):
            _copy(file, building / f"{place:06}.jsonl", bad.get(file, set()))
        _put_in_place(building, folder)
    return counted


def leave_out_of_rows(
    splits: Mapping[str, Any], path: str, kind: str, folder: Path, share: float
) -> BadRows:
    """Note the bad rows of data sets in `folder`, by split.

    Raises:
        ValueError: there are more than the share of all.
        OSError: they can't be noted.
    """
    counted, left = BadRows(share), sum(map(len, splits.values()))
    numbers: dict[str, list[int]] = {}
    for split, rows in splits.items():
        check = RowCheck(kind, counted)
        of_split = f" of {split}" if split else ""
        for number, row in enumerate(_rows(rows, learnt_columns(kind))):
            left -= 1
            if check.is_bad(row, f"{path}, row {number + 1}{of_split}"):
                numbers.setdefault(split, []).append(number)
                _refuse(counted.refusal(left_rows=left))
    _refuse(counted.refusal())
    if counted.bad:
        building = _building(folder)
        for split, bad in numbers.items():
            numpy.save(building / _numbers_name(split), numpy.array(bad))
        _put_in_place(building, folder)
    return counted


def _rows(rows: Any, columns: Collection[str]) -> Iterator[dict[str, Any]]:
    names = [name for name in rows.column_names if name in columns]
    for batch in rows.select_columns(names).iter(batch_size=_ROWS_AT_ONCE):
        for values in zip(*(batch[name] for name in names), strict=True):
            yield dict(zip(names, values, strict=True))


def _numbers_name(split: str) -> str:
    return f"numbers-{split}.npy"


def _lines(opened: SourceFile) -> Iterator[tuple[int, bytes]]:
    """The lines that hold something, with their numbers, each whole up to a row's largest size."""
    number = 0
    while line := opened.text.readline(MAX_DOCUMENT_BYTES + 1):
        number += 1
        while len(line) > MAX_DOCUMENT_BYTES and not line.endswith(b"\n"):
            rest = opened.text.readline(MAX_DOCUMENT_BYTES)
            if not rest or rest.endswith(b"\n"):
                break
        if line.strip():
            yield number, line


def _refuse(problem: str | None) -> None:
    if problem is not None:
        raise ValueError(problem)


def _copy(file: str, copy: Path, bad: set[int]) -> None:
    with SourceFile(Path(file)) as opened, copy.open("wb") as out:
        for number, line in _lines(opened):
            if number not in bad:
                out.write(line if line.endswith(b"\n") else line + b"\n")


def _building(folder: Path) -> Path:
    building = folder.with_name(f".building-{folder.name}")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    return building


def _put_in_place(building: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    building.rename(folder)
