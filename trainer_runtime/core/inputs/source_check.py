"""Checks what a source holds, so that data that can't be learnt from is reported early."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, MAX_ROW_DEPTH, decode_value
from trainer_runtime.core.files.compression import (
    CompressedFileError,
    SourceFile,
    compression_of,
    without_ending,
)
from trainer_runtime.core.files.corpus import (
    JSON_LINES,
    SHARD_FORMATS,
    TEXT,
    AskedSource,
    CorpusFile,
    Listing,
    is_named,
    list_source,
    other_files,
)
from trainer_runtime.core.files.reading import check_reading
from trainer_runtime.core.inputs.bad_rows import BadRows
from trainer_runtime.core.inputs.file_kinds import (
    is_json_lines,
    problem_of_parquet,
    problem_of_text,
)
from trainer_runtime.core.inputs.row_form import (
    CHAT_COLUMNS,
    is_chat,
    problem_of_columns,
    problem_of_row,
)
from trainer_runtime.core.inputs.shard_rows import ShardError, shard_rows
from trainer_runtime.core.inputs.token_files import tokens_in, validation_names
from trainer_runtime.core.inputs.utf8_text import another_encoding, is_another_encoding, sampled

_BLOCK_BYTES = 1 << 20
_ROWS, _FILES, _TEXTS = 100, 20, 1000
_SHARD_FILES = 3
# Below this share of a folder's bytes, text is a list of contents or a licence.
_LEAST_TEXT = 0.01
_LONGEST_LINE_BYTES = 16 << 20
_MOST_SOURCE_BYTES = 64 << 20
# Decompressed, of how many files, by which the size of all is estimated.
_RATIO_BYTES, _RATIO_FILES = 4 << 20, 20
_SHARDS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(ending), library)
    for ending, library in (
        (r".*\.mds(\.\w+)?", "MosaicML Streaming (MDS)"),
        (r"(.*/)?chunk-\d+-\d+(\.\w+)?\.bin(\.\w+)?", "LitData"),
        (r".*\.tar(\.\w+)?|.*\.tgz", "WebDataset, or other tar archives"),
        (r".*\.tfrecords?(\.\w+)?|.*[.-]tfrecords?-\d+-of-\d+(\.\w+)?", "TFRecord"),
        (r".*\.(array_record|arrayrecord|beton|lance)", "ArrayRecord, FFCV or Lance"),
    )
)


def check_source(asked: AskedSource) -> Listing:
    """A source's files, and what is wrong with their content; raises what the reader's check does.

    Of texts the begin, middle and end of up to a thousand files are read, of files of tokens all
    headers and indices, of JSON Lines the first hundred rows of up to twenty files, 64 MiB in all.
    Of Parquet files it reads the column names if pyarrow is installed; otherwise the host checks
    them in the run's environment. Files compressed by zstd take the package zstandard likewise.
    """
    listing = list_source(asked.path, asked.format)
    check = _CHECKS.get(asked.format)
    if check is None or listing.problem is not None:
        return listing
    try:
        if asked.format in _MAY_BE_COMPRESSED:
            listing = _with_compression(listing)
        return check(asked, listing)
    except CompressedFileError as error:
        return replace(listing, malformed=str(error))
    except OSError as error:
        return replace(listing, problem=f"it can't be read ({error.strerror})")


def _with_compression(listing: Listing) -> Listing:
    """How the files are compressed, and about how much they hold, by the first ones' begin."""
    plain_bytes = packed_bytes = 0
    sampled_plain = sampled_packed = 0
    methods = set()
    for number, (file, path) in enumerate(zip(listing.files, _paths(listing), strict=True)):
        method = compression_of(path)
        if method is None:
            plain_bytes += file.size_bytes
            continue
        methods.add(method)
        packed_bytes += file.size_bytes
        if number < _RATIO_FILES or not sampled_packed:
            held, read = _decompressed(path)
            sampled_plain, sampled_packed = sampled_plain + held, sampled_packed + read
    if not methods or not sampled_packed:
        return replace(listing, compression=tuple(sorted(methods)))
    estimate = plain_bytes + packed_bytes * sampled_plain // sampled_packed
    return replace(listing, compression=tuple(sorted(methods)), plain_bytes=estimate)


def _decompressed(path: Path) -> tuple[int, int]:
    """How many bytes the begin of a compressed file holds, and of how many of its own."""
    try:
        with SourceFile(path) as opened:
            held = 0
            while held < _RATIO_BYTES and (data := opened.text.read(_BLOCK_BYTES)):
                held += len(data)
            return held, opened.read_bytes
    except ImportError:
        return 0, 0


def _check_texts(asked: AskedSource, listing: Listing) -> Listing:
    """Binary data, other encodings, and JSON Lines that nobody called text, would be trained on
    as bytes; of a folder of something else, what describes it."""
    paths = _paths(listing)[:_TEXTS]
    others = other_files(Path(listing.path), listing.files) if listing.is_folder else []
    listing = replace(listing, left_out=len(others), left_name=others[0].name if others else None)
    malformed = _problem_of_folder(listing, others) or next(
        filter(None, map(problem_of_text, paths)), None
    )
    if malformed is None:
        malformed, undecodable = _encoding(paths)
        listing = replace(listing, undecodable=undecodable)
    if malformed is None and paths and not asked.stated and all(map(is_json_lines, paths)):
        malformed = (
            f"{paths[0].name} holds JSON objects, one a line: set the source's format to jsonl, or "
            "to text where the JSON itself is to be learnt"
        )
    if not paths and listing.is_folder and malformed is None:
        malformed = _what_else(listing.path)
    return replace(listing, malformed=malformed)


def _problem_of_folder(listing: Listing, others: Sequence[CorpusFile]) -> str | None:
    """Why a folder's text is not what it is there for."""
    shards = problem_of_shards(file.name for file in others)
    if shards is not None or not listing.files or not others:
        return shards
    text_bytes = sum(file.size_bytes for file in listing.files)
    other_bytes = sum(file.size_bytes for file in others)
    if text_bytes > _LEAST_TEXT * (text_bytes + other_bytes):
        return None
    return (
        f"text is {text_bytes:,} bytes of it ({listing.files[0].name}), and {other_bytes:,} are "
        f"not ({others[0].name}): name the text by its own path, or set the source's format"
    )


def _encoding(paths: Sequence[Path]) -> tuple[str | None, int]:
    """Why samples of the files can't be trained on as UTF-8, and how much of them is damaged."""
    undecodable = total = 0
    worst, most = None, 0
    for path in paths:
        bad, read = sampled(path)
        undecodable, total = undecodable + bad, total + read
        worst, most = (path, bad) if bad > most else (worst, most)
    if worst is None or not is_another_encoding(undecodable, total):
        return None, undecodable
    return another_encoding(worst.name, undecodable, total), undecodable


def _what_else(folder: str) -> str | None:
    """What a folder without text holds that another format reads."""
    for data_format in ("parquet", "jsonl", "tokens", "hf"):
        files = list_source(folder, data_format).files
        if files:
            return (
                f"it holds no text, but {files[0].name}: set the source's format to {data_format}"
            )
    return None


def _check_tokens(_asked: AskedSource, listing: Listing) -> Listing:
    paths = _paths(listing)
    malformed, files = tokens_in(paths)
    tokens = sum(file.tokens for file in files)
    return replace(listing, malformed=malformed, tokens=tokens, beside=_beside(listing, paths))


def _beside(listing: Listing, paths: list[Path]) -> str | None:
    """The validation tokens that lie beside a file that was given alone."""
    if listing.is_folder or not paths:
        return None
    names = [file.name for file in paths[0].parent.glob("*.bin")]
    of_validation = validation_names(names)
    others = [name for name in of_validation if name != paths[0].name]
    return others[0] if others and paths[0].name not in of_validation else None


def _check_rows(asked: AskedSource, listing: Listing) -> Listing:
    malformed, read_bytes, chats = None, 0, False
    counted = BadRows(asked.bad_rows)
    for file in _paths(listing)[:_FILES]:
        if read_bytes > _MOST_SOURCE_BYTES:
            break
        name = without_ending(file.name)
        if name.endswith(".parquet"):
            problem, has_chats = _problem_of_parquet(file, asked.kind)
            malformed, chats = malformed or problem, chats or has_chats
        elif asked.format == "jsonl" or name.endswith(JSON_LINES):
            size, has_chats = _count_rows(file, asked.kind, counted)
            read_bytes, chats = read_bytes + size, chats or has_chats
    total_bytes = listing.plain_bytes or sum(file.size_bytes for file in listing.files)
    rows = counted.rows
    examples = rows if read_bytes >= total_bytes else rows * total_bytes // max(1, read_bytes)
    malformed = malformed or counted.refusal_of_sample(examples)
    return replace(
        listing,
        malformed=malformed,
        examples=examples,
        chats=chats,
        bad_rows=counted.bad,
        first_bad=counted.first,
    )


def _check_shards(asked: AskedSource, listing: Listing) -> Listing:
    """The first rows of the first shards; damage further on is seen by the preparation."""
    counted, chats, malformed = BadRows(asked.bad_rows), False, None
    for file in _paths(listing)[:_SHARD_FILES]:
        try:
            for number, row in enumerate(islice(shard_rows(file, asked.format), _ROWS)):
                check_reading()
                problem = problem_of_row(asked.kind, row)
                counted.add(None if problem is None else f"{file.name}, row {number}: {problem}")
                chats = chats or (problem is None and is_chat(row))
        except ImportError:
            continue
        except ShardError as error:
            malformed = malformed or str(error)
    malformed = malformed or counted.refusal_of_sample(0)
    return replace(listing, malformed=malformed, chats=chats)


def _paths(found: Listing) -> list[Path]:
    root = Path(found.path)
    return [root / file.name if found.is_folder else root for file in found.files]


def _count_rows(file: Path, kind: str, counted: BadRows) -> tuple[int, bool]:
    """Count the first rows; of how many bytes they are, and whether one is a conversation."""
    size = 0
    chats = False
    for number, line in islice(_lines(file), _ROWS):
        size += len(line)
        if size > _MOST_SOURCE_BYTES:
            break
        if not line.strip():
            continue
        row = row_of_line(line)
        problem = row if isinstance(row, str) else problem_of_row(kind, row)
        counted.add(None if problem is None else f"{file.name}, line {number}: {problem}")
        chats = chats or (not isinstance(row, str) and problem is None and is_chat(row))
        if len(line) == _LONGEST_LINE_BYTES:  # what follows is its rest, perhaps without an end
            break
    return size, chats


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """None where this machine can't decompress the file."""
    try:
        with SourceFile(file) as opened:
            number = 0
            while line := opened.text.readline(_LONGEST_LINE_BYTES):
                check_reading()
                number += 1
                yield number, line
    except ImportError:
        return


def row_of_line(line: bytes) -> dict[str, Any] | str:
    """The row of a line of a JSON Lines file, or why it holds none."""
    if line.lstrip().startswith(b"["):
        return (
            "it holds a JSON array; every line holds one object "
            "(`jq -c '.[]' FILE > OTHER.jsonl` writes them so)"
        )
    try:
        row = decode_value(line, "row", max_bytes=MAX_DOCUMENT_BYTES, max_depth=MAX_ROW_DEPTH)
    except ValueError:
        return "it is not a JSON object; every line holds one"
    if not isinstance(row, dict):
        return f"it holds a JSON {_kind(row)}; every line holds one object"
    return row


def _kind(value: object) -> str:
    return {list: "array", str: "text", bool: "boolean"}.get(type(value), "number")


def _problem_of_parquet(file: Path, kind: str) -> tuple[str | None, bool]:
    """What is wrong with its columns, and whether they hold conversations."""
    problem = problem_of_parquet(file)
    if problem is not None:
        return problem, False
    try:
        from pyarrow import ArrowException, parquet, types
    except ImportError:
        return None, False
    try:
        schema = parquet.read_schema(file)
    except ArrowException:
        return f"{file.name} is not a Parquet file, or is cut off", False
    chats = any(one.name in CHAT_COLUMNS and types.is_list(one.type) for one in schema)
    problem = problem_of_columns(kind, schema.names)
    return None if problem is None else f"{file.name}: {problem}", chats


_CHECKS: Mapping[str, Callable[[AskedSource, Listing], Listing]] = {
    TEXT: _check_texts,
    "tokens": _check_tokens,
    "jsonl": _check_rows,
    "preference": _check_rows,
    "parquet": _check_rows,
    **dict.fromkeys(SHARD_FORMATS, _check_shards),
}


# The formats whose files may be compressed.
_MAY_BE_COMPRESSED = frozenset({TEXT, "jsonl", "preference", *SHARD_FORMATS})


def problem_of_shards(names: Iterable[str]) -> str | None:
    """Why a folder with files of these names is not read as text; None where it may be."""
    for name in names:
        library = library_of_shard(name)
        if library is not None:
            readable = next((one for one in SHARD_FORMATS if is_named(name, one)), None)
            if readable is not None:
                return f"{name} is a shard of {library}: set the source's format to {readable}"
            return (
                f"{name} is a shard of {library}, which no format here reads: write its texts "
                "as JSON Lines or Parquet with a column `text`, or train by a program of "
                "yours that reads the shards (framework script)"
            )
    return None


def library_of_shard(name: str) -> str | None:
    """The library that writes shards of such a name; None for other files."""
    return next((library for pattern, library in _SHARDS if pattern.fullmatch(name)), None)
