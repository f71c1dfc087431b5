"""Turns a config's sources into token shards in the host's cache.

An entry is `<cache>/data/<fingerprint>/`: one train and one validation file per source, raw
little-endian numbers of the `dtype` that `meta.json` names (uint16, unless a vocabulary needs
uint32), and `meta.json` itself, which is written last and records every file's size. An entry
that is whole is used without reading the sources; one that is missing or damaged is built beside
and renamed into place. A build that was killed is resumed by the next one, from the journal of its
folder: the fingerprint in the folder's name says that it is of the same files and tokenizer. A lock
per entry lets two runs that want the same data build it once; who waits for data that is on its way
holds none, so that whichever comes first serves all.

Text by the byte tokenizer is cut by `byte_shards`, whatever else by the interpreter that is to
train, with it text that is compressed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.config import ConfigDocument, DataConfig, RunConfig
from trainer_runtime.core.config.tokenizer_training import FOLDER
from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.files.compression import compression_of
from trainer_runtime.core.files.corpus import TEXT, CorpusFile, Source
from trainer_runtime.core.files.durable import sync_folder
from trainer_runtime.core.files.shard_journal import remove_journal, sync
from trainer_runtime.core.files.tokenizer_folder import BYTE, JSON_NAME
from trainer_runtime.host.environment.training_python import InputUnusableError, TrainingPython
from trainer_runtime.host.prepare.byte_shards import DTYPE, cut_bytes, refuse_short, token_count
from trainer_runtime.host.prepare.sources import (
    DataUnusableError,
    as_planned,
    file_path,
    refuse_empty,
)
from trainer_runtime.host.prepare.uploads import NothingComesError, await_shards, await_sources

Report = Callable[[str], None]

META_NAME = "meta.json"
# What `train.data.prepare_shards` says of the shards that it has cut.
CUT_NAME = "cut.json"
META_VERSION = 1
TOKEN_BYTES = {DTYPE: 2, "uint32": 4}
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def prepare(config: RunConfig, report: Report, python: TrainingPython | None = None) -> Path:
    """The folder of the config's shards, built first where the cache lacks it.

    Data that the client sends is awaited without a limit. Memory stays bounded whatever the
    files' sizes. Safe to call from several processes at once. `python` cuts what isn't text by the
    byte tokenizer; None: nobody does.

    Raises:
        DataUnusableError: a source is missing, empty, too short, or changed since the plan; the
            client can't send it; the disk is full; or the config asks for what can't be
            built here.
        InputUnusableError, InputUnavailableError: `python` can't cut it.
    """
    data = _checked(config)
    entry = data.folder
    parent = entry.parent
    if is_whole(entry):
        return entry
    try:
        parent.mkdir(parents=True, exist_ok=True)
        arrived = _await_data(entry, config, report)
        with _locked(parent / f"{entry.name}.lock", report):
            if not is_whole(entry):
                _build(entry, _Work(data, config.document, python, report), arrived)
    except NothingComesError as error:
        raise DataUnusableError(str(error)) from None
    except OSError as error:
        raise DataUnusableError(_explained(error, parent)) from error
    return entry


def is_whole(entry: Path) -> bool:
    """True if the entry's `meta.json` is there and each file has the size that it records, that of
    a tokenizer which was trained for the data among them."""
    try:
        meta = decode_fields((entry / META_NAME).read_bytes(), META_NAME)
        sources, splits = meta.sections("sources"), ("train", "val")
        parts = [
            source.section(split)
            for source in sources
            for split in splits
            if split in source.values
        ]
        token_bytes = TOKEN_BYTES[meta.text("dtype", DTYPE)]
        recorded = meta.values.get("tokenizer_bytes")
        if recorded is not None and recorded != _tokenizer_bytes(entry):
            return False
        return meta.integer("v") == META_VERSION and all(
            (entry / part.text("file")).stat().st_size == part.integer("tokens") * token_bytes
            for part in parts
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


@dataclass(frozen=True, slots=True)
class _Work:
    """What is to be cut, and by whom where that is not this program."""

    data: DataConfig
    document: ConfigDocument
    python: TrainingPython | None
    report: Report


def _checked(config: RunConfig) -> DataConfig:
    data = config.data
    required = {"cache_dir": data.cache_dir, "seq_len": data.seq_len}
    lacking = [name for name, value in required.items() if not value]
    if "sources" not in config.document.get("data", {}):  # an empty list needs its shards only
        lacking.append("sources")
    if lacking:
        raise DataUnusableError(f"the config's `data` lacks {', '.join(lacking)}")
    names = [source.name for source in data.inputs]
    fingerprint_safe = _SAFE_NAME.match(data.fingerprint)
    unsafe = [name for name in names if not _SAFE_NAME.match(name)]
    if unsafe or len(set(names)) != len(names) or not fingerprint_safe:
        raise DataUnusableError(f"data.sources[].name must be plain and unique: {unsafe or names}")
    return data


def _is_cut_here(data: DataConfig, sources: Sequence[Source]) -> bool:
    if data.filters is not None or data.tokenizer != BYTE:
        return False
    if {source.format for source in sources} != {TEXT}:
        return False
    files = (file_path(source, document) for source in sources for document in source.files)
    return all(compression_of(file) is None for file in files)


@contextmanager
def _locked(file: Path, report: Report) -> Iterator[None]:
    with file.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("data: waiting for another run that prepares the same data")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _await_data(
    entry: Path, config: RunConfig, report: Report
) -> Mapping[str, tuple[CorpusFile, ...]]:
    """Wait for what is sent: the files of the sources, or the shards themselves, which may as well
    come from another run that is prepared at the same time."""
    data = config.data
    if data.upload is None:
        return {}
    if data.prepare != "here":
        return await_sources(config, lambda: is_whole(entry), report)
    with _locked(entry.with_name(f"{entry.name}.lock"), report):
        if not is_whole(entry):
            _put_away(entry)  # the sender keeps what it finds
    await_shards(config, lambda: is_whole(entry), report)
    return {}


def _build(entry: Path, work: _Work, arrived: Mapping[str, tuple[CorpusFile, ...]]) -> None:
    """Build the shards; `arrived`: the files of the sources that were sent, as they were there."""
    data = work.data
    sources = as_planned(data, arrived)
    cut_here, seq_len = _is_cut_here(data, sources), data.seq_len
    if not cut_here and work.python is None:
        raise DataUnusableError(
            "only plain text by the byte tokenizer is cut without the interpreter that trains; "
            "set data.prepare to box"
        )
    for source in sources:
        refuse_empty(source)
        if cut_here:
            refuse_short(source, seq_len, is_split=not data.validation)
    building = entry.parent / f".building-{entry.name}"
    for leftover in entry.parent.glob(f"{building.name}-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    building.mkdir(exist_ok=True)
    try:
        if not is_whole(building):
            _refuse_full_disk(building, sources)
            _cut(building, work, sources, here=cut_here)
            _refuse_incomplete(building)
        _put_in_place(building, entry)
    except (DataUnusableError, InputUnusableError, OSError):
        shutil.rmtree(building, ignore_errors=True)
        raise


def _cut(building: Path, work: _Work, sources: Sequence[Source], *, here: bool) -> None:
    """Cut what of the shards is not there yet; `meta.json` last."""
    data = work.data
    if here or work.python is None:
        _write_meta(building, data, cut_bytes(building, data, sources, work.report))
        return
    request = {
        "data": work.document["data"],
        "folder": str(building),
        "files": _names(sources),
    }
    work.python.run("prepare_shards", request, work.report)
    reported = decode_fields((building / CUT_NAME).read_bytes(), CUT_NAME)
    _write_meta(building, data, reported.values)


def _names(sources: Sequence[Source]) -> dict[str, list[str]]:
    """The files of each source by its name, as paths."""
    return {
        source.name: [str(file_path(source, document)) for document in source.files]
        for source in sources
    }


def _refuse_full_disk(building: Path, sources: Sequence[Source]) -> None:
    written_bytes = sum(shard.stat().st_size for shard in building.glob("*.bin"))
    needed_bytes = TOKEN_BYTES[DTYPE] * sum(map(token_count, sources)) - written_bytes
    free_bytes = shutil.disk_usage(building).free
    if free_bytes < needed_bytes:
        raise DataUnusableError(
            f"the disk of {building.parent} has {_mib(free_bytes)} MiB free, the shards need "
            f"{_mib(needed_bytes)}; free some, or move the cache"
        )


def _write_meta(folder: Path, data: DataConfig, cut: Mapping[str, object]) -> None:
    """`cut`: vocab_size, end_of_text, dtype and the sources' files, as their maker reports."""
    meta = {
        "v": META_VERSION,
        "fingerprint": data.fingerprint,
        "tokenizer": data.tokenizer,
        "seq_len": data.seq_len,
        **cut,
    }
    if data.tokenizer_training is not None:
        meta["tokenizer_bytes"] = _tokenizer_bytes(folder)
    with (folder / META_NAME).open("wb") as file:
        file.write(json.dumps(meta, indent=1).encode() + b"\n")
        sync(file)


def _refuse_incomplete(building: Path) -> None:
    if not is_whole(building):
        raise DataUnusableError(
            f"the shards in {building} changed while they were written; prepare them again"
        )


def _tokenizer_bytes(folder: Path) -> int:
    """The size of the tokenizer that was trained for the data."""
    return (folder / FOLDER / JSON_NAME).stat().st_size


def _put_in_place(building: Path, entry: Path) -> None:
    """A kill before the end leaves `building` whole, with or without what is removed here."""
    (building / CUT_NAME).unlink(missing_ok=True)
    remove_journal(building)
    sync_folder(building)
    _put_away(entry)
    building.rename(entry)
    sync_folder(entry.parent)


def _put_away(entry: Path) -> None:
    """Remove an incomplete entry, at once for all its readers."""
    damaged = entry.parent / f".building-{entry.name}-damaged"
    shutil.rmtree(damaged, ignore_errors=True)
    if entry.exists():
        entry.rename(damaged)
        shutil.rmtree(damaged, ignore_errors=True)


def _explained(error: OSError, parent: Path) -> str:
    if error.errno in _NO_SPACE:
        return f"the disk of {parent} is full; free some space, or move the cache"
    return f"the cache in {parent} can't be written: {error.strerror or error}"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.1f}"
