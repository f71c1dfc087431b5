"""Writes the data card of a run at the end of its preparation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainer_runtime.core.config import RunConfig, SourceConfig
from trainer_runtime.core.files.corpus import (
    ROWS,
    SHARDS,
    TEXT,
    VALIDATION_SHARE,
    CorpusFile,
    Source,
    content_digests,
    list_files,
)
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.inputs.bad_rows import COUNTS, noted_folder
from trainer_runtime.core.inputs.data_card import (
    CONTENT,
    DATA_CARD,
    LISTING,
    PAGE,
    CardSource,
    DataCard,
    render_card,
)
from trainer_runtime.core.protocol.figures import share_text
from trainer_runtime.host.files.files import read_json, write_json
from trainer_runtime.host.prepare.shards import META_NAME
from trainer_runtime.host.prepare.sources import file_path

# A SHA-256 of as much takes less than a minute; tokenizing it takes half an hour at least.
_MOST_DIGESTED_BYTES = 16 << 30
DIGESTS = "digests.json"


def write_card(config: RunConfig, run: Path) -> None:
    """Write the card of what was prepared, as JSON and as a page.

    Raises:
        OSError: it can't be written.
    """
    card = data_card(config)
    write_atomic(run / PAGE, render_card(card).encode())
    write_json(run / DATA_CARD, card.to_dict())


def data_card(config: RunConfig) -> DataCard:
    """What a run is trained on, as far as its configuration, the prepared data and the files say
    it."""
    data = config.data
    fetched = {item.folder: item for item in config.inputs}
    tokenizer = fetched.get(data.tokenizer)
    return DataCard(
        run_id=config.run_id,
        name=config.name,
        method=config.method,
        fingerprint=data.fingerprint,
        validation=_validation(config),
        tokenizer=data.tokenizer
        if tokenizer is None
        else str(tokenizer.hub or tokenizer.source or data.tokenizer),
        tokenizer_revision=None if tokenizer is None else tokenizer.revision,
        tokenizer_sha256=data.tokenizer_digest,
        seq_len=data.seq_len,
        sources=tuple(_sources(config)),
        mixes={phase.name: _shares(phase.sources) for phase in config.phases if phase.sources},
    )


def _validation(config: RunConfig) -> str:
    if config.data.validation:
        return "files of its own: " + ", ".join(one.name for one in config.data.validation)
    share = share_text(VALIDATION_SHARE)
    form = config.data.form or SHARDS
    of_each = "the end of each source" if form == SHARDS else "evenly of each source"
    return f"{share}, {of_each}, unless it names a part of its own"


def _shares(weights: Mapping[str, float]) -> dict[str, float]:
    total = sum(weights.values()) or 1.0
    return {name: weight / total for name, weight in weights.items()}


def _sources(config: RunConfig) -> Iterator[CardSource]:
    data = config.data
    shares = _shares({source.name: source.weight for source in data.sources})
    digests = _digests(config)
    prepared = _prepared(config)
    sent = {} if data.upload is None else data.upload.sources
    hub = {item.folder: str(item.hub) for item in config.inputs if item.repo_type == "dataset"}
    for source in data.inputs:
        path = sent.get(source.name) or hub.get(source.path) or source.path
        yield CardSource(
            name=source.name,
            path=path,
            format=source.format,
            is_validation=source.held_out,
            share=None if source.held_out else shares[source.name],
            license=source.license,
            revision=source.revision,
            **digests.get(source.name, {}),
            **prepared.get(source.name, {}),
        )


def _prepared(config: RunConfig) -> dict[str, dict[str, Any]]:
    """What the preparation counted, by source."""
    data = config.data
    if (data.form or SHARDS) == SHARDS:
        meta = read_json(data.folder / META_NAME) or {}
        return {entry["name"]: _of_shards(entry) for entry in meta.get("sources", ())}
    if data.form == ROWS:
        counts = read_json(noted_folder(config) / COUNTS) or {}
        return {name: dict(counted) for name, counted in counts.items()}
    return {}


def _of_shards(entry: Mapping[str, Any]) -> dict[str, Any]:
    skipped, filtered = entry.get("skipped") or {}, entry.get("filtered") or {}
    return {
        "documents": entry.get("documents"),
        "tokens": (entry.get("train") or {}).get("tokens"),
        "held_out_tokens": (entry.get("val") or {}).get("tokens"),
        "rows": skipped.get("of"),
        "bad_rows": skipped.get("rows"),
        "first_bad": skipped.get("first"),
        "texts": filtered.get("of"),
        "dropped": filtered.get("dropped"),
        "masked": filtered.get("masked"),
    }


def _digests(config: RunConfig) -> dict[str, dict[str, Any]]:
    """Files, bytes and digest of each source that is here, by name; made once for the prepared
    data."""
    kept = config.data.folder / DIGESTS
    digests = read_json(kept)
    if digests is not None:
        return digests
    listed = {source.name: _listed(source) for source in config.data.inputs}
    total = sum(file.size_bytes for files in listed.values() for file in files)
    digests = {
        source.name: _digest(source, files, whole=total <= _MOST_DIGESTED_BYTES)
        for source in config.data.inputs
        if (files := listed[source.name])
    }
    if len(digests) == len(listed):
        with suppress(OSError):  # a cache that is only read
            config.data.folder.mkdir(parents=True, exist_ok=True)
            write_json(kept, digests)
    return digests


def _listed(source: SourceConfig) -> tuple[CorpusFile, ...]:
    """Its files; none where only its shards came here."""
    try:
        return list_files(Path(source.path), source.format or TEXT)
    except OSError:
        return ()


def _digest(config: SourceConfig, files: tuple[CorpusFile, ...], *, whole: bool) -> dict[str, Any]:
    source = Source(config.name, config.path, files, config.format)
    rows: list[list[Any]] = [[file.name, file.size_bytes] for file in files]
    if whole:
        digests = content_digests(source, {file.name: file_path(source, file) for file in files})
        rows = [[file.name, digests[source.name, file.name]] for file in files]
    return {
        "files": len(files),
        "size_bytes": source.size_bytes,
        "sha256": hashlib.sha256(json.dumps(rows).encode()).hexdigest(),
        "digest_of": CONTENT if whole else LISTING,
    }
