"""Checks the first rows of a source, so that rows that a method can't use are reported early."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, MAX_ROW_DEPTH, decode_value
from trainer_runtime.core.files.corpus import AskedSource, Listing, list_source
from trainer_runtime.core.inputs.row_form import problem_of_columns, problem_of_row

_ROWS, _FILES = 100, 20
_LONGEST_LINE_BYTES = 16 << 20
_JSON_LINES = (".jsonl", ".ndjson", ".json")


def check_source(asked: AskedSource) -> Listing:
    """A source's files, and what is wrong with their rows; never raises.

    Reads the first hundred rows of up to twenty JSON Lines files. Of Parquet files it reads the
    column names if pyarrow is installed; otherwise the host checks them in the run's environment.
    """
    found = list_source(asked.path, asked.format)
    if asked.format not in ("jsonl", "preference", "parquet") or found.problem is not None:
        return found
    malformed, rows, read_bytes = None, 0, 0
    try:
        for file in _paths(found)[:_FILES]:
            if file.suffix == ".parquet":
                malformed = malformed or _problem_of_parquet(file, asked.kind)
            elif asked.format == "jsonl" or file.suffix in _JSON_LINES:
                problem, count, size = _problem_of_lines(file, asked.kind)
                malformed, rows, read_bytes = malformed or problem, rows + count, read_bytes + size
    except OSError as error:
        return replace(found, problem=f"it can't be read ({error.strerror})")
    total_bytes = sum(file.size_bytes for file in found.files)
    examples = rows if read_bytes >= total_bytes else rows * total_bytes // max(1, read_bytes)
    return replace(found, malformed=malformed, examples=examples)


def _paths(found: Listing) -> list[Path]:
    root = Path(found.path)
    return [root / file.name if found.is_folder else root for file in found.files]


def _problem_of_lines(file: Path, kind: str) -> tuple[str | None, int, int]:
    """What is wrong with the first rows, how many there are, and of how many bytes."""
    count = size = 0
    for number, line in islice(_lines(file), _ROWS):
        size += len(line)
        if not line.strip():
            continue
        count += 1
        problem = _problem_of_line(line, kind)
        if problem is not None:
            return f"{file.name}, line {number}: {problem}", count, size
    return None, count, size


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    with file.open("rb") as stream:
        number = 0
        while line := stream.readline(_LONGEST_LINE_BYTES):
            number += 1
            yield number, line


def _problem_of_line(line: bytes, kind: str) -> str | None:
    try:
        row = decode_value(line, "row", max_bytes=MAX_DOCUMENT_BYTES, max_depth=MAX_ROW_DEPTH)
    except ValueError:
        return "it is not a JSON object; every line holds one"
    if not isinstance(row, dict):
        return f"it holds a JSON {_kind(row)}; every line holds one object"
    return problem_of_row(kind, row)


def _kind(value: object) -> str:
    return {list: "array", str: "text", bool: "boolean"}.get(type(value), "number")


def _problem_of_parquet(file: Path, kind: str) -> str | None:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        return None
    try:
        columns = parquet.read_schema(file).names
    except ArrowException:
        return f"{file.name} is not a Parquet file, or is cut off"
    problem = problem_of_columns(kind, columns)
    return None if problem is None else f"{file.name}: {problem}"
