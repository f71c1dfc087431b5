"""Which files make up a corpus, and the fingerprint under which their shards are cached.

Reads file names, sizes and the first bytes. The client (when planning) and the host run this same
code, so that both see the same files.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from trainer_runtime.core.config.data import BAD_ROWS
from trainer_runtime.core.decoding import Fields, JsonRecord
from trainer_runtime.core.files.compression import (
    MAGIC_BYTES,
    ZSTD,
    CompressedFileError,
    SourceFile,
    compressed_by,
    without_ending,
)
from trainer_runtime.core.files.protected import (
    is_home,
    is_protected,
    names_credentials,
    refuse_protected,
)
from trainer_runtime.core.files.reading import check_reading
from trainer_runtime.core.files.regular import NOT_REGULAR, open_regular

# What a source's path begins with where it is the training machine's own.
ON_BOX = "host:"
# Raised when the shards' layout or the tokenizers' output changes, so that old entries are not met.
SHARD_FORMAT = 1
VALIDATION_SHARE = 0.05
_BINARY_PROBE_BYTES = 8192
# What zstd holds is seen by the name: not every host can decompress it before an environment is
# there, and a listing is the same everywhere.
_NO_TEXT = (".tar", ".bin", ".idx", ".mds", ".parquet", ".arrow", ".npy", ".npz", ".tfrecord")


JSON_LINES = (".jsonl", ".ndjson", ".json")
# By format: how the names of its files end; JSON lines may be compressed (`a.jsonl.gz`). Text is
# recognized by its first bytes instead.
ENDINGS = {
    "jsonl": JSON_LINES,
    "parquet": (".parquet",),
    "arrow": (".arrow",),
    "hf": (".arrow", "dataset_dict.json", "dataset_info.json", "state.json"),
    "preference": (*JSON_LINES, ".parquet"),
    "tokens": (".bin", ".idx"),
    "webdataset": (".tar", ".tar.gz", ".tgz"),
    "mds": (".mds", ".mds.gz", ".mds.zstd"),
    "tfrecord": (".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecords.gz"),
}
# Shards of other libraries, by `core.inputs.shard_rows`.
SHARD_FORMATS = ("webdataset", "mds", "tfrecord")
# `train.tfrecord-00000-of-00010` is a TFRecord file, too.
_NUMBERED = re.compile(r"-\d+-of-\d+")
TEXT = "text"
# What `data.form` may be: token shards; rows by `datasets`; rows by `datasets`, as they stream.
SHARDS, ROWS, STREAM = "shards", "dataset", "stream"


@dataclass(frozen=True, slots=True)
class CorpusFile:
    """One document. `name` is relative to the source's folder, with `/` between its parts."""

    name: str
    size_bytes: int
    modified_ns: int


def _files(fields: Fields) -> tuple[CorpusFile, ...]:
    rows = fields.rows("files", "name", "size_bytes", "modified_ns")
    return tuple(
        CorpusFile(row.text("name"), row.integer("size_bytes"), row.integer("modified_ns"))
        for row in rows
    )


@dataclass(frozen=True, slots=True)
class Source:
    """One entry of `data.sources`, or of `data.validation` if `held_out`, with the files that it
    stands for. `revision`: the commit of those that the hub has."""

    name: str
    path: str
    files: tuple[CorpusFile, ...]
    format: str = TEXT
    held_out: bool = False
    revision: str | None = None

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class AskedSource(JsonRecord):
    """A source that is to be listed: its path and format, and the kind of its rows
    (`row_form.rows_of`). `stated`: the format was given, and is not the default. `bad_rows`: the
    share of rows that may be skipped."""

    path: str
    format: str = TEXT
    kind: str = "pretrain"
    stated: bool = False
    bad_rows: float = BAD_ROWS


@dataclass(frozen=True, slots=True)
class Listing(JsonRecord):
    """What lies at a path, as a source; `problem` says why there is nothing to list, `malformed`
    what is wrong with its content. `examples`: about how many rows, 0 where nobody counted;
    `tokens`: of files of tokens, None for others. `beside`: validation tokens beside a file of
    tokens that was given alone. `undecodable`: bytes of a sample of the texts that are not UTF-8,
    few enough to train on. `left_out`: files of a folder that are not text, such as `left_name`.
    `chats`: some of its rows are conversations. `compression`: how its files are compressed;
    `plain_bytes`: about how much they are decompressed, None where none is or nobody knows.
    `bad_rows`: how many of the rows that were read are none, `first_bad` what the first one is.
    """

    path: str
    is_folder: bool = False
    files: tuple[CorpusFile, ...] = field(default=(), metadata={"read": _files})
    problem: str | None = None
    malformed: str | None = None
    examples: int = 0
    tokens: int | None = None
    beside: str | None = None
    undecodable: int = 0
    left_out: int = 0
    left_name: str | None = None
    chats: bool = False
    compression: tuple[str, ...] = ()
    plain_bytes: int | None = None
    bad_rows: int = 0
    first_bad: str | None = None

    def to_dict(self) -> dict[str, Any]:
        rows = [[file.name, file.size_bytes, file.modified_ns] for file in self.files]
        return {**super(Listing, self).to_dict(), "files": rows}


def list_source(path: str, data_format: str = TEXT) -> Listing:
    """The documents at a path, or why they can't be listed; never raises."""
    try:
        return Listing(path, Path(path).is_dir(), list_files(Path(path), data_format))
    except FileNotFoundError:
        return Listing(path, problem="there is nothing at this path")
    except OSError as error:
        return Listing(path, problem=f"it can't be read ({error.strerror})")


def list_files(path: Path, data_format: str = TEXT) -> tuple[CorpusFile, ...]:
    """The files of a format (`data.sources[].format`) in a folder, by relative name.

    Hidden files and folders, empty files, links that lead out of the folder, files that are named
    as credentials are, homes of Trainmaster and whatever is not of the format are left out; text is
    what has no NUL in its first 8 KiB, decompressed where need be. A file given by its own path is
    taken as it is.

    Raises:
        FileNotFoundError: there is nothing at `path`.
        OSError: it can't be read, or is such a file.
    """
    refuse_protected(path)
    if not path.is_dir():
        return (_corpus_file(path, path.name),)
    root = Path(os.path.realpath(path))
    files = [
        _corpus_file(root / name, name) for name in _names(root) if _is_of(root / name, data_format)
    ]
    return tuple(sorted(files, key=lambda file: file.name))


def other_files(path: Path, read: Sequence[CorpusFile]) -> list[CorpusFile]:
    """The files of a folder besides those that were listed; empty ones don't count.

    Raises:
        OSError: it can't be read.
    """
    root, names = Path(os.path.realpath(path)), {file.name for file in read}
    others = [_corpus_file(root / name, name) for name in _names(root) if name not in names]
    return [file for file in others if file.size_bytes]


def _names(root: Path) -> Iterator[str]:
    """The files of a folder that may be sent anywhere, by relative name."""
    for folder, folder_names, file_names in os.walk(root):
        check_reading()
        shown = [name for name in folder_names if not name.startswith(".")]
        folder_names[:] = sorted(name for name in shown if not is_home(Path(folder, name)))
        for name in file_names:
            file = Path(folder, name)
            if left_out(file, root) is None:
                yield file.relative_to(root).as_posix()


def left_out(file: Path, root: Path) -> str | None:
    """What a file below `root`, a real path, is that no format reads: hidden, not a regular file, a
    link that leads out, or one of keys and credentials; None for all others."""
    if file.name.startswith("."):
        return "hidden"
    if not file.is_file():
        return "not a regular file"
    if not _inside(file, root):
        return "a link out of the folder"
    if names_credentials(file.relative_to(root)) or is_protected(file):
        return "named as credentials are, or protected"
    return None


def fingerprint(
    sources: Sequence[Source],
    tokenizer: str,
    seq_len: int,
    form: str = SHARDS,
    *,
    digests: Mapping[tuple[str, str], str] | None = None,
    bad_rows: float = BAD_ROWS,
    filters: Mapping[str, Any] | None = None,
) -> str:
    """Sixteen hexadecimal digits that change with any file's name, size or time of change.

    `tokenizer` is `byte`, or a digest of what another one is. `seq_len` counts because the held-out
    share is at least one sequence. `form`: what is made of the files (`data.form`). With `digests`
    (see `content_digests`) the content counts instead of the time, which a copy may not keep.
    """
    described: dict[str, Any] = {
        "shard_format": SHARD_FORMAT,
        "validation_share": VALIDATION_SHARE,
        "tokenizer": tokenizer,
        "seq_len": seq_len,
        "sources": [
            [
                source.name,
                [
                    [
                        file.name,
                        file.size_bytes,
                        digests[source.name, file.name] if digests else file.modified_ns,
                    ]
                    for file in source.files
                ],
            ]
            for source in sources
        ],
    }
    # Only where they say something, so that shards of earlier versions are met.
    formats = [source.format for source in sources]
    if any(data_format != TEXT for data_format in formats):
        described["formats"] = formats
    if form != SHARDS:
        described["form"] = form
    if bad_rows != BAD_ROWS:
        described["bad_rows"] = bad_rows
    if filters:
        described["filters"] = dict(filters)
    held_out = [source.name for source in sources if source.held_out]
    if held_out:
        described["held_out"] = held_out
    revisions = {source.name: source.revision for source in sources if source.revision}
    if revisions:
        described["revisions"] = revisions
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


def content_digests(source: Source, paths: Mapping[str, Path]) -> dict[tuple[str, str], str]:
    """The SHA-256 of each of a source's files, by the names of both; `paths`: where they lie.

    Raises:
        OSError: one can't be read.
    """
    digests = {}
    for file in source.files:
        with open_regular(paths[file.name]) as opened:
            digests[source.name, file.name] = _sha256(opened)
    return digests


def listing_digest(sources: Sequence[Source]) -> str:
    """Hexadecimal digits that identify these sources' files; the same that `receive`
    writes into `.complete` for a tree with a folder for each source."""
    rows = [
        [f"{source.name}/{file.name}", file.size_bytes, file.modified_ns]
        for source in sources
        for file in source.files
    ]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _sha256(opened: BinaryIO) -> str:
    digest = hashlib.sha256()  # hashlib.file_digest needs Python 3.11
    while block := opened.read(1 << 20):
        check_reading()
        digest.update(block)
    return digest.hexdigest()


def _corpus_file(path: Path, name: str) -> CorpusFile:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, NOT_REGULAR, str(path))
    return CorpusFile(name, status.st_size, status.st_mtime_ns)


def _inside(path: Path, root: Path) -> bool:
    return not path.is_symlink() or Path(os.path.realpath(path)).is_relative_to(root)


def _is_of(path: Path, data_format: str) -> bool:
    endings = ENDINGS.get(data_format)
    if endings is not None:
        return is_named(path.name, data_format) and path.stat().st_size > 0
    with open_regular(path) as file:
        head = file.read(_BINARY_PROBE_BYTES)
    method = compressed_by(head[:MAGIC_BYTES])
    if method == ZSTD:
        return not without_ending(path.name).endswith(_NO_TEXT)
    return bool(head) and b"\0" not in (head if method is None else _decompressed_head(path))


def is_named(name: str, data_format: str) -> bool:
    """Whether a file has the name of a format that is known by names."""
    if data_format in ("jsonl", "preference"):
        name = without_ending(name)
    elif data_format == "tfrecord":
        name = _NUMBERED.sub("", name)
    return name.endswith(ENDINGS[data_format])


def _decompressed_head(path: Path) -> bytes:
    """None of a damaged file, which the check of its content names."""
    try:
        with SourceFile(path) as opened:
            return opened.text.read(_BINARY_PROBE_BYTES)
    except (CompressedFileError, ImportError):
        return b""
