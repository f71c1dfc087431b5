"""Tokenizes the sources into shards with the packages of the training's environment.

`python -m trainer_runtime.train.data.prepare_shards REQUEST`, started by `box.prepare.shards`,
which manages the cache entry. This program writes one file of tokens per source and split, and
`cut.json` last. Each text is followed by the end-of-text token; windows cross text boundaries.

Where an earlier process was killed, the pieces that it has cut are read and not tokenized again:
what the reading counts (bad rows, undecodable bytes) is of the whole source then, too.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from trainer_runtime.core.config import DataConfig, SourceConfig
from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, DecodingError, Fields, decode_fields
from trainer_runtime.core.files.corpus import VALIDATION_SHARE
from trainer_runtime.core.files.shard_journal import Journal, Place, holds, open_shard, sync
from trainer_runtime.core.inputs.bad_rows import BadRows
from trainer_runtime.core.inputs.token_files import tokens_in, validation_names
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.data.ahead import ahead
from trainer_runtime.train.data.bulk_encoding import in_bulk
from trainer_runtime.train.data.documents import PIECE_CHARACTERS, Piece, pieces
from trainer_runtime.train.data.filters import MINHASH, Filters, report
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
    with Journal(folder, lambda line: print(line, flush=True)) as journal:
        data = with_trained_tokenizer(data, folder, files)
        tokenizer = in_bulk(tokenizer_of(data), data, files)
        dtype, code = next(
            (name, code) for most, name, code in _DTYPES if tokenizer.vocab_size <= most
        )
        filters = _filters(data, folder, files)
        cutting = _Cutting(data, folder, tokenizer, code, journal, filters)
        try:
            described = [cutting.described(source, files[source.name]) for source in data.inputs]
        finally:
            if filters is not None:
                filters.close()
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
    journal: Journal
    filters: Filters | None = None
    _counted: dict[str, BadRows] = field(default_factory=dict)

    def described(self, source: SourceConfig, files: Sequence[str]) -> Mapping[str, object]:
        """Cut a source, unless that is done; what `meta.json` says of it."""
        described = self.journal.done(source.name)
        if described is None:
            described = self._cut(source, files)
            self.journal.finish(source.name, described)
        elif self.data.filters is not None and self.data.filters.dedup is not None:
            deque(self._read(source, files), maxlen=0)  # later sources may repeat its texts
        self._trim(described)
        return described

    def _cut(self, source: SourceConfig, files: Sequence[str]) -> dict[str, object]:
        """The end of its training shard is held out, once `_trim` has removed it there."""
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
        if self.filters is not None and not source.held_out:
            parts["filtered"] = self.filters.counts(source.name)
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
            _copy_end(train, val, held_out * self._token_bytes)
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
        if source.format == TOKENS:
            with path.open("wb") as out:
                written = _copy(out, source, files, self.tokenizer, self.code)
                sync(out)
            return written
        place = self.journal.place(source.name)
        if not holds(path, place.tokens * self._token_bytes):
            place = Place()
        read = self._read(source, files)
        next(islice(read, place.pieces, place.pieces), None)
        if place.tokens:
            resumed = f"resumed after {place.tokens:,} tokens of an earlier preparation"
            print(f"{source.name}: {resumed}", flush=True)
        with open_shard(path, place.tokens * self._token_bytes) as out:
            for batch in ahead(_batches(read)):
                documents, tokens = _write(out, batch, self.tokenizer, self.code)
                place = place.after(len(batch), documents, tokens)
                self.journal.keep(source.name, place, out)
            sync(out)
        if self.filters is not None and not source.held_out:
            print(f"{source.name}: {report(self.filters.counts(source.name))}", flush=True)
        return place.documents, place.tokens

    def _read(self, source: SourceConfig, files: Sequence[str]) -> Iterator[Piece]:
        """The pieces of a source, those that the filters leave."""
        counted = self._counted[source.name] = BadRows(self.data.bad_rows)
        read = _with_progress(source, files, counted)
        if self.filters is None or source.held_out:
            return read
        return self.filters.apply(source, read)

    def _trim(self, described: Mapping[str, object]) -> None:
        """Remove the end of a training shard that was copied to the validation's. The journal has
        the source as done by then, so that a kill before or after is made up for here."""
        part = Fields(described, "source").find_section("train")
        if part is not None:
            with (self.folder / part.text("file")).open("r+b") as shard:
                size_bytes = part.integer("tokens") * self._token_bytes
                if shard.seek(0, os.SEEK_END) > size_bytes:
                    shard.truncate(size_bytes)
                    sync(shard)

    @property
    def _token_bytes(self) -> int:
        return array(self.code).itemsize

    def _path(self, split: str, source: SourceConfig) -> Path:
        return self.folder / f"{split}-{source.name}.bin"


def _filters(data: DataConfig, folder: Path, files: Mapping[str, Sequence[str]]) -> Filters | None:
    """Ready to be applied to the sources in their order; None where none are chosen."""
    if data.filters is None:
        return None
    tokens = next((source.name for source in data.sources if source.format == TOKENS), None)
    if tokens is not None:
        raise ConfigError(f"data source {tokens}: data.filters judge texts, and these are tokens")
    filters = Filters(data.filters, folder)
    if data.filters.dedup == MINHASH:
        print("data.filters: searching for near duplicates", flush=True)
        filters.find_near_duplicates(
            (source, _with_progress(source, files[source.name], BadRows(data.bad_rows)))
            for source in data.sources
        )
    return filters


def _parted(source: SourceConfig, files: Sequence[str]) -> tuple[list[str], list[str]]:
    """What to train on, and what is held out already: of ready tokens, the files named as such."""
    own = validation_names(files) if source.format == TOKENS else []
    return [file for file in files if file not in own], own


def _write(
    out: BinaryIO, batch: Sequence[tuple[str, bool]], tokenizer: Tokenizer, code: str
) -> tuple[int, int]:
    """The numbers of documents that end and of tokens written."""
    documents, written = 0, array(code)
    encoded = tokenizer.encode([text for text, _ in batch])
    for (_, ends), numbers in zip(batch, encoded, strict=True):
        written.extend(numbers)
        if ends:
            documents += 1
            written.append(tokenizer.end_of_text)
    out.write(memoryview(written))
    return documents, len(written)


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


def _copy_end(whole: Path, end: Path, size_bytes: int) -> None:
    """Copy the last bytes of a file into another one, which is on the disk then."""
    with whole.open("rb") as source, end.open("wb") as out:
        source.seek(-size_bytes, os.SEEK_END)
        shutil.copyfileobj(source, out, _COPIED_BYTES)
        sync(out)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
