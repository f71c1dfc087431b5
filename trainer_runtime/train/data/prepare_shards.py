"""Tokenizes the sources into shards with the packages of the training's environment.

`python -m trainer_runtime.train.data.prepare_shards REQUEST`, started by `box.prepare.shards`,
which manages the cache entry. This program writes one file of tokens per source and split, and
`cut.json` last. Each text is followed by the end-of-text token; windows cross text boundaries.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from trainer_runtime.core.config import DataConfig, SourceConfig
from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, DecodingError, decode_fields
from trainer_runtime.core.files.corpus import VALIDATION_SHARE
from trainer_runtime.core.inputs.bad_rows import BadRows
from trainer_runtime.core.inputs.token_files import tokens_in, validation_names
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.data.bulk_encoding import in_bulk
from trainer_runtime.train.data.documents import PIECE_CHARACTERS, Piece, pieces
from trainer_runtime.train.data.tokenizers import Tokenizer, tokenizer_of
from trainer_runtime.train.data.train_tokenizer import with_trained_tokenizer

TOKENS = "tokens"
_BATCH_CHARACTERS = 16 * PIECE_CHARACTERS
_PROGRESS_INTERVAL_S = 2.0
_COPIED_BYTES = 4 << 20
# By the largest vocabulary: the name that `meta.json` has for it, and Python's.
_DTYPES = ((1 << 16, "uint16", "H"), (1 << 32, "uint32", "I"))


def main(request_path: str) -> int:
    """Cut what a request asks for; the exit code."""
    request = decode_fields(
        Path(request_path).read_bytes(), "request", max_bytes=MAX_DOCUMENT_BYTES
    )
    named = request.section("files")
    try:
        data = DataConfig.of(request.section("data"))
        files = {source.name: named.texts(source.name) for source in data.inputs}
        cut(data, Path(request.text("folder")), files)
    except (ConfigError, DecodingError) as error:
        print(error, flush=True)
        return ExitCode.UNUSABLE
    return 0


def cut(data: DataConfig, folder: Path, files: Mapping[str, Sequence[str]]) -> None:
    """Write the shards of every source into `folder`; `files` are its files by a source's name.
    A tokenizer that the data asks for is trained first.

    Raises:
        ConfigError: a source can't be read, or is too short.
    """
    data = with_trained_tokenizer(data, folder, files)
    tokenizer = in_bulk(tokenizer_of(data), data, files)
    dtype, code = next((name, code) for most, name, code in _DTYPES if tokenizer.vocab_size <= most)
    cutting = _Cutting(data, folder, tokenizer, code)
    described = [cutting.described(source, files[source.name]) for source in data.inputs]
    described_shards = {
        "vocab_size": tokenizer.vocab_size,
        "end_of_text": tokenizer.end_of_text,
        "dtype": dtype,
        "sources": described,
    }
    (folder / "cut.json").write_text(json.dumps(described_shards))


@dataclass(frozen=True, slots=True)
class _Cutting:
    """Of what, into which folder, by which tokenizer, as numbers of which type of `array`."""

    data: DataConfig
    folder: Path
    tokenizer: Tokenizer
    code: str
    _counted: dict[str, BadRows] = field(default_factory=dict)

    def described(self, source: SourceConfig, files: Sequence[str]) -> dict[str, object]:
        """Cut a source; what `meta.json` says of it."""
        if source.held_out:
            documents, parts = self._prepare_source("val", source, files)
        elif self.data.validation:
            documents, parts = self._prepare_source("train", source, _parted(source, files)[0])
        else:
            documents, parts = self._both(source, files)
        counted = self._counted.get(source.name)
        if counted is not None and counted.bad:
            print(f"{source.name}: {counted.report()}", flush=True)
            parts["skipped"] = {"rows": counted.bad, "of": counted.rows, "first": counted.first}
        return {"name": source.name, "documents": documents, **parts}

    def _prepare_source(
        self, split: str, source: SourceConfig, files: Sequence[str]
    ) -> tuple[int, dict[str, object]]:
        path = self._path(split, source)
        documents, tokens = self._write(path, source, files)
        _refuse_short(source, tokens, self.data.seq_len + 1, self.data.seq_len)
        return documents, {split: {"file": path.name, "tokens": tokens}}

    def _both(self, source: SourceConfig, files: Sequence[str]) -> tuple[int, dict[str, object]]:
        seq_len = self.data.seq_len
        train, val = self._path("train", source), self._path("val", source)
        named, own_val = _parted(source, files)
        documents, tokens = self._write(train, source, named)
        if own_val:
            _, held_out = self._write_file(val, source, own_val)
            _refuse_short(source, min(tokens, held_out), seq_len + 1, seq_len)
            print(f"{source.name}: {held_out:,} tokens of its own for validation", flush=True)
        else:
            held_out = _held_out(source, tokens, seq_len)
            _split_off(train, val, held_out * array(self.code).itemsize)
            tokens -= held_out
        return documents, {
            "train": {"file": train.name, "tokens": tokens},
            "val": {"file": val.name, "tokens": held_out},
        }

    def _write(self, path: Path, source: SourceConfig, files: Sequence[str]) -> tuple[int, int]:
        documents, tokens = self._write_file(path, source, files)
        print(f"{source.name}: {documents:,} documents, {tokens:,} tokens", flush=True)
        return documents, tokens

    def _write_file(
        self, path: Path, source: SourceConfig, files: Sequence[str]
    ) -> tuple[int, int]:
        """The numbers of documents and of tokens written; the file is on the disk then."""
        with path.open("wb") as out:
            if source.format == TOKENS:
                written = _copy(out, source, files, self.tokenizer, self.code)
            else:
                counted = self._counted[source.name] = BadRows(self.data.bad_rows)
                read = _with_progress(source, files, counted)
                written = _write(out, read, self.tokenizer, self.code)
            out.flush()
            os.fsync(out.fileno())
        return written

    def _path(self, split: str, source: SourceConfig) -> Path:
        return self.folder / f"{split}-{source.name}.bin"


def _parted(source: SourceConfig, files: Sequence[str]) -> tuple[list[str], list[str]]:
    """What to train on, and what is held out already: of ready tokens, the files named as such."""
    own = validation_names(files) if source.format == TOKENS else []
    return [file for file in files if file not in own], own


def _write(
    out: BinaryIO, read: Iterator[Piece], tokenizer: Tokenizer, code: str
) -> tuple[int, int]:
    """The numbers of documents and of tokens written."""
    documents = tokens = 0
    for batch in _batches(read):
        written = array(code)
        encoded = tokenizer.encode([text for text, _ in batch])
        for (_, ends), numbers in zip(batch, encoded, strict=True):
            # An array of its own halves the time; of bytes it would be their memory.
            written.extend(numbers if isinstance(numbers, bytes) else array(code, numbers))
            if ends:
                documents += 1
                written.append(tokenizer.end_of_text)
        tokens += len(written)
        out.write(memoryview(written))
    return documents, tokens


def _copy(
    out: BinaryIO,
    source: SourceConfig,
    files: Sequence[str],
    tokenizer: Tokenizer,
    code: str,
) -> tuple[int, int]:
    """Ready tokens of any layout; every one is compared with the vocabulary."""
    problem, opened = tokens_in([Path(file) for file in files])
    if problem is not None:
        raise ConfigError(f"data source {source.name}: {problem}")
    count = documents = 0
    for file in opened:
        ended = 0
        for tokens in file.numbers():
            least, most = min(tokens), max(tokens)
            if least < 0 or most >= tokenizer.vocab_size:
                raise ConfigError(
                    f"data source {source.name}: {file.path} holds token "
                    f"{least if least < 0 else most:,}, but the vocabulary has "
                    f"{tokenizer.vocab_size:,}; give theirs by model.vocab_size, or name their "
                    "tokenizer by data.tokenizer"
                )
            count += len(tokens)
            ended += tokens.count(tokenizer.end_of_text)
            out.write(memoryview(tokens if file.code == code else array(code, tokens)))
        documents += ended if file.documents is None else file.documents
    return documents, count


def _batches(read: Iterator[Piece]) -> Iterator[list[tuple[str, bool]]]:
    """As much as is cut at once, by all cores."""
    batch: list[tuple[str, bool]] = []
    held = 0
    for text, ends, _ in read:
        batch.append((text, ends))
        held += len(text) + 1
        if held >= _BATCH_CHARACTERS:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _with_progress(source: SourceConfig, files: Sequence[str], counted: BadRows) -> Iterator[Piece]:
    """A source's pieces; prints the progress every two seconds."""
    total_mib = sum(Path(file).stat().st_size for file in files) / 2**20
    reported_s = time.monotonic()
    for piece in pieces(source, files, counted):
        yield piece
        if time.monotonic() - reported_s >= _PROGRESS_INTERVAL_S:
            reported_s, share = time.monotonic(), piece[2]
            of_all = f"{share * total_mib:,.1f} of {total_mib:,.1f} MiB ({share:.0%})"
            print(f"{source.name}: {of_all}", flush=True)


def _held_out(source: SourceConfig, tokens: int, seq_len: int) -> int:
    _refuse_short(source, tokens, 2 * (seq_len + 1), seq_len)
    return min(max(int(tokens * VALIDATION_SHARE), seq_len + 1), tokens // 2)


def _refuse_short(source: SourceConfig, tokens: int, needed: int, seq_len: int) -> None:
    if tokens < needed:
        takes = "training and validation need" if needed > seq_len + 1 else "one sequence takes"
        raise ConfigError(
            f"data source {source.name}: {tokens} tokens in {source.path}, but {takes} {needed} "
            f"with data.seq_len {seq_len}; give more text or a shorter data.seq_len"
        )


def _split_off(whole: Path, tail: Path, size_bytes: int) -> None:
    """Move the last bytes of a file into another one; both are on the disk then."""
    with whole.open("r+b") as source, tail.open("wb") as out:
        kept = source.seek(0, os.SEEK_END) - size_bytes
        source.seek(kept)
        shutil.copyfileobj(source, out, _COPIED_BYTES)
        source.truncate(kept)
        for file in (source, out):
            file.flush()
            os.fsync(file.fileno())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
