"""Cuts plain text by the byte tokenizer, without the training's interpreter.

The number of tokens is known before anything is read, so that training's and validation's part are
written in one pass, and any token's place in the files is known: a resume seeks to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from trainer_runtime.core.config import DataConfig
from trainer_runtime.core.files.corpus import VALIDATION_SHARE, Source
from trainer_runtime.core.files.shard_journal import Journal, Place, holds, open_shard, sync
from trainer_runtime.host.prepare.sources import DataUnusableError, file_path

Report = Callable[[str], None]

DTYPE = "uint16"
END_OF_TEXT = 256
BYTE_VOCABULARY = 257
_TOKEN_BYTES = 2
_CHUNK_BYTES = 4 * 1024 * 1024
_PROGRESS_INTERVAL_S = 2.0


def cut_bytes(
    folder: Path, data: DataConfig, sources: Sequence[Source], report: Report
) -> dict[str, object]:
    """Cut what of the shards in `folder` is not there yet; what `meta.json` says of them.

    Raises:
        DataUnusableError: a file can't be read, or has another size than in the listing.
        OSError: a shard can't be written.
    """
    with Journal(folder, lambda line: report(f"data: {line}")) as journal:
        described = [
            _described(folder, source, _held_out(data, source), journal, report)
            for source in sources
        ]
    return {
        "vocab_size": BYTE_VOCABULARY,
        "end_of_text": END_OF_TEXT,
        "dtype": DTYPE,
        "sources": described,
    }


def token_count(source: Source) -> int:
    """How many a source has: its bytes, and one behind each document."""
    return source.size_bytes + len(source.files)


def refuse_short(source: Source, seq_len: int, *, is_split: bool) -> None:
    tokens, needed = token_count(source), (2 if is_split else 1) * (seq_len + 1)
    if tokens < needed:
        takes = "training and validation need" if is_split else "one sequence takes"
        raise DataUnusableError(
            f"data source {source.name}: {tokens} tokens in {source.path}, but {takes} {needed} "
            f"with data.seq_len {seq_len}; give more text or a shorter data.seq_len"
        )


def _held_out(data: DataConfig, source: Source) -> int:
    """How many of a source's tokens, its last ones, are for validation."""
    total = token_count(source)
    if data.validation:
        return total if source.held_out else 0
    return min(max(int(total * VALIDATION_SHARE), data.seq_len + 1), total // 2)


def _described(
    folder: Path, source: Source, held_out: int, journal: Journal, report: Report
) -> Mapping[str, object]:
    """Cut a source, unless that is done; what `meta.json` says of it."""
    described = journal.done(source.name)
    if described is None:
        described = _write_source(folder, source, held_out, journal, report)
        journal.finish(source.name, described)
    return described


def _write_source(
    folder: Path, source: Source, held_out: int, journal: Journal, report: Report
) -> Mapping[str, object]:
    counts = {"train": token_count(source) - held_out, "val": held_out}
    paths = {split: folder / f"{split}-{source.name}.bin" for split in counts}
    done = journal.place(source.name).tokens
    sizes = _sizes(done, counts["train"])
    if not all(holds(paths[split], sizes[split]) for split in counts):
        done, sizes = 0, _sizes(0, 0)
    with (
        open_shard(paths["train"], sizes["train"]) as train,
        open_shard(paths["val"], sizes["val"]) as val,
    ):
        room_bytes = counts["train"] * _TOKEN_BYTES - sizes["train"]
        for tokens in _progressing(_token_stream(source, done), source, done, report):
            train.write(tokens[:room_bytes])
            val.write(tokens[room_bytes:])
            room_bytes -= min(room_bytes, len(tokens))
            done += len(tokens) // _TOKEN_BYTES
            journal.keep(source.name, Place(tokens=done), train, val)
        for file in (train, val):
            sync(file)
    parts = {split: {"file": paths[split].name, "tokens": counts[split]} for split in counts}
    for split in [split for split, count in counts.items() if not count]:
        paths[split].unlink()
        del parts[split]
    return {"name": source.name, "documents": len(source.files), **parts}


def _sizes(tokens: int, of_training: int) -> dict[str, int]:
    """The bytes of both shards when so many tokens of a source are written."""
    trained = min(tokens, of_training)
    token_bytes = _TOKEN_BYTES
    return {"train": trained * token_bytes, "val": (tokens - trained) * token_bytes}


def _token_stream(source: Source, start: int) -> Iterator[memoryview]:
    """Each document's bytes as uint16, then the end-of-text token; from token `start` on.

    Raises:
        DataUnusableError: a file can't be read, or has another size than in the listing.
    """
    token_bytes = _TOKEN_BYTES
    end_of_text = memoryview(END_OF_TEXT.to_bytes(token_bytes, "little"))
    for document in source.files:
        if start > document.size_bytes:
            start -= document.size_bytes + 1
            continue
        file = file_path(source, document)
        left_bytes = document.size_bytes - start
        try:
            with file.open("rb", buffering=0) as stream:
                stream.seek(start)
                while data := stream.read(_CHUNK_BYTES):
                    left_bytes -= len(data)
                    tokens = bytearray(token_bytes * len(data))
                    tokens[::token_bytes] = data
                    yield memoryview(tokens)
        except OSError as error:
            raise DataUnusableError(
                f"data source {source.name}: {file}: {error.strerror}"
            ) from None
        if left_bytes:
            raise DataUnusableError(f"data source {source.name}: {file} changed while it was read")
        start = 0
        yield end_of_text


def _progressing(
    stream: Iterator[memoryview], source: Source, start: int, report: Report
) -> Iterator[memoryview]:
    token_bytes = _TOKEN_BYTES
    total_bytes = token_bytes * token_count(source)
    done_bytes, reported_s = start * token_bytes, time.monotonic()
    if start:
        report(f"data: {source.name}: resumed after {start:,} tokens of an earlier preparation")
    for tokens in stream:
        yield tokens
        done_bytes += len(tokens)
        if time.monotonic() - reported_s >= _PROGRESS_INTERVAL_S:
            reported_s = time.monotonic()
            report(
                f"data: {source.name}: {_mib(done_bytes // token_bytes)} of "
                f"{_mib(total_bytes // token_bytes)} MiB ({done_bytes / total_bytes:.0%})"
            )
    report(
        f"data: {source.name}: {len(source.files):,} documents, "
        f"{done_bytes // token_bytes:,} tokens"
    )


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.1f}"
