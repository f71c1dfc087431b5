"""Which files a path stands for, and what each of them is by its content."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePath

from trainer_runtime.core.files.compression import (
    CompressedFileError,
    SourceFile,
    compressed_by,
    without_ending,
)
from trainer_runtime.core.files.corpus import left_out
from trainer_runtime.core.files.protected import is_home, refuse_protected
from trainer_runtime.core.files.reading import check_reading
from trainer_runtime.core.files.regular import open_regular
from trainer_runtime.core.inputs.file_kinds import is_json_lines, kind_of, problem_of_text
from trainer_runtime.core.inputs.source_check import library_of_shard
from trainer_runtime.core.inputs.token_files import TokenFileError, open_token_file

MOST_FILES = 10_000
# Entries of folders that are visited, of whatever kind.
_MOST_ENTRIES = 50_000
# Files whose content is read to see what they are; the others are what these are, by their ending.
_MOST_OPENED = 200
_HEAD_BYTES = 8192
_TAR_MARK = slice(257, 262)
_SAVED = frozenset({"dataset_info.json", "state.json", "dataset_dict.json"})
JSON_DOCUMENT = "one JSON document, not JSON Lines"
# Of a text that ends so, a first line that is a whole object decides nothing.
_DOCUMENTS = (".json", ".ipynb")


@dataclass(frozen=True, slots=True)
class DataFile:
    """`kind`: what it is, in words; `format`: of a source that reads it, None where none does.
    `size_bytes`: as it is stored, compressed or not."""

    path: Path
    size_bytes: int
    kind: str
    format: str | None = None


@dataclass(slots=True)
class DataFiles:
    """`skipped`: what was left out, by why. `is_whole`: there are no more files than were listed.
    `by_name`: files of which only the ending was read."""

    root: Path
    files: list[DataFile] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    is_whole: bool = True
    by_name: int = 0


def list_data(path: Path) -> DataFiles:
    """The files at a path, at most 10,000 of a folder, each with what it is.

    Raises:
        OSError: there is nothing, it can't be read, or it is protected.
    """
    refuse_protected(path)
    root = Path(os.path.realpath(path))
    listed = DataFiles(root)
    if not root.is_dir():
        if not root.is_file():
            with open_regular(root):  # raises what is wrong with it
                pass
        listed.files.append(_data_file(root, root.name))
        return listed
    paths = sorted(_paths(root, listed))
    listed.files = list(_data_files(paths, listed))
    return listed


def _paths(root: Path, listed: DataFiles) -> Iterator[Path]:
    """The files of a folder that a source may read, with whatever is left out counted."""
    folders, entries, found = [root], 0, 0
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as scanned:
                for entry in islice(scanned, _MOST_ENTRIES):
                    check_reading()
                    entries += 1
                    if entries > _MOST_ENTRIES or found >= MOST_FILES:
                        listed.is_whole = False
                        return
                    path = Path(entry.path)
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name.startswith(".") or is_home(path):
                            listed.skipped["hidden"] += 1
                        else:
                            folders.append(path)
                        continue
                    why = left_out(path, root)
                    if why is not None:
                        listed.skipped[why] += 1
                        continue
                    found += 1
                    yield path
        except PermissionError:
            listed.skipped["not readable"] += 1


def _data_files(paths: list[Path], listed: DataFiles) -> Iterator[DataFile]:
    """Evenly chosen ones are opened; others of the same ending are what most of those are."""
    step = max(1, -(-len(paths) // _MOST_OPENED))
    opened: dict[Path, DataFile] = {}
    by_ending: dict[str, Counter[tuple[str, str | None]]] = {}
    for path in paths[::step]:
        check_reading()
        try:
            data_file = _data_file(path, path.relative_to(listed.root).as_posix())
        except PermissionError:
            listed.skipped["not readable"] += 1
            continue
        except OSError:
            listed.skipped["not a regular file"] += 1
            continue
        opened[path] = data_file
        by_ending.setdefault(path.suffix, Counter())[data_file.kind, data_file.format] += 1
    for number, path in enumerate(paths):
        if path in opened:
            yield opened[path]
        elif number % step:
            yield _named(path, by_ending.get(path.suffix), listed)


def _named(
    path: Path, alike: Counter[tuple[str, str | None]] | None, listed: DataFiles
) -> DataFile:
    try:
        size = path.stat().st_size
    except OSError:
        size = 0
    listed.by_name += 1
    kind, data_format = alike.most_common(1)[0][0] if alike else ("not opened", None)
    return DataFile(path, size, kind, data_format)


def _data_file(path: Path, name: str) -> DataFile:
    """Raises: OSError: it can't be read, or is not a regular file."""
    with open_regular(path) as stream:
        head = stream.read(_HEAD_BYTES)
        size = stream.seek(0, 2)
    kind, data_format = _kind(path, name, head)
    return DataFile(path, size, kind, data_format)


def _kind(path: Path, name: str, head: bytes) -> tuple[str, str | None]:
    if not head:
        return "empty", None
    if (library := library_of_shard(name)) is not None:
        return f"shards of {library}", None
    if (method := compressed_by(head)) is not None:
        return _kind_compressed(path, name, method)
    if head[_TAR_MARK] == b"ustar":
        return "tar archives, as of WebDataset", None
    if PurePath(name).name in _SAVED:
        return "descriptions of a saved data set", None
    if (tokens := _tokens(path)) is not None:
        return tokens, "tokens"
    kind = kind_of(head)
    if kind is not None:
        return kind.name, kind.format
    if problem_of_text(path) is not None:
        return "binary, of no kind that is known", None
    return _kind_of_text(path, name, head)


def _kind_compressed(path: Path, name: str, method: str) -> tuple[str, str | None]:
    """By what it holds, where that is text and this machine can decompress it."""
    packed = f"compressed by {method}"
    try:
        with SourceFile(path) as opened:
            head = opened.text.read(_HEAD_BYTES)
        if problem_of_text(path) is not None:
            return packed, None
        kind, data_format = _kind_of_text(path, without_ending(name), head)
    except ImportError:
        return packed, None
    except CompressedFileError:
        return f"{packed}, and damaged", None
    return f"{kind}, {packed}", data_format


def _kind_of_text(path: Path, name: str, head: bytes) -> tuple[str, str | None]:
    if is_json_lines(path):
        return "JSON Lines", "jsonl"
    if head.lstrip()[:1] in (b"{", b"[") and PurePath(name).suffix in _DOCUMENTS:
        return JSON_DOCUMENT, None
    return "text", "text"


def _tokens(path: Path) -> str | None:
    """Who writes such files of tokens; None for files that are none, or are damaged."""
    if path.suffix not in (".bin", ".idx"):
        return None
    if path.suffix == ".idx":
        return "indices of Megatron's tokens" if path.with_suffix(".bin").exists() else None
    with open_regular(path) as stream:
        head = stream.read(_HEAD_BYTES)
    kind = kind_of(head)
    if kind is not None and kind.format != "tokens":
        return None
    if kind is None and problem_of_text(path) is None:
        return None
    try:
        return f"tokens of {open_token_file(path).layout}"
    except TokenFileError:
        return None
