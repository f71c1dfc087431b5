"""What it is trained on, and what has to come to the host first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainer_runtime.core.config.tokenizer_training import TokenizerTraining
from trainer_runtime.core.decoding import Fields, JsonRecord

# Which share of the rows may be skipped as unreadable, where nothing is said of it.
BAD_ROWS = 0.001


@dataclass(frozen=True, slots=True)
class SourceConfig(JsonRecord):
    """One data source; weights count relative to their sum. `path`: where the host reads it.
    `held_out`: it is of `data.validation`. `revision`: the commit of files that the hub has, or of
    a store's the digest of their ETags. `is_listed`: the plan has its files. `license`: as the spec
    or the hub's card names it."""

    name: str
    path: str = ""
    format: str = "text"
    weight: float = 1.0
    held_out: bool = False
    revision: str | None = None
    is_listed: bool = True
    license: str | None = None


@dataclass(frozen=True, slots=True)
class FilterConfig(JsonRecord):
    """Which texts are left out before they are tokenized. `dedup`: `exact` or `minhash`; `pii`:
    `mask`."""

    min_chars: int | None = None
    gopher_quality: bool = False
    c4_quality: bool = False
    dedup: str | None = None
    pii: str | None = None


@dataclass(frozen=True, slots=True)
class Skip(JsonRecord):
    """After step `at_step` the data position jumps ahead by so many sequences."""

    at_step: int
    sequences: int


@dataclass(frozen=True, slots=True)
class UploadConfig(JsonRecord):
    """What the client sends: its own path of each source by name, and the digest of their list."""

    sources: Mapping[str, str]
    size_bytes: int = 0
    listing: str = ""


def _upload(fields: Fields) -> UploadConfig | None:
    section = fields.section("upload")
    return UploadConfig.of(section) if section.values else None


def _held_out(fields: Fields) -> tuple[SourceConfig, ...]:
    sources = map(SourceConfig.of, fields.sections("validation"))
    return tuple(replace(source, held_out=True) for source in sources)


@dataclass(frozen=True, slots=True)
class DataConfig(JsonRecord):
    """`tokenizer` is `byte`, a folder of the host, or `none` for ready tokens below `vocab_size`;
    `tokenizer_digest` identifies it. `tokenizer_training`: how the preparation trains it into that
    folder; None where it is there.

    `prepare` says where the texts are tokenized (`box`, `here`, `stream`), `form` what the trainer
    reads. `by_content`: the fingerprint is of the files' content, not of their times.
    `validation`: files for `val_loss`; without any, a part of each source is held out.
    `document_masks`: attention stops at a text's end. `bad_rows`: the share of rows that can't be
    read and are skipped. `filters`: what of the texts to train on is left out. `workers`: processes
    of each rank that read ahead.
    """

    sources: tuple[SourceConfig, ...] = ()
    tokenizer: str = "byte"
    seq_len: int = 0
    fingerprint: str = ""
    cache_dir: str = ""
    tokenizer_digest: str | None = None
    prepare: str = "box"
    form: str | None = None
    skip: tuple[Skip, ...] = ()
    upload: UploadConfig | None = field(default=None, metadata={"read": _upload})
    by_content: bool = False
    vocab_size: int | None = None
    validation: tuple[SourceConfig, ...] = field(default=(), metadata={"read": _held_out})
    document_masks: bool = False
    bad_rows: float = BAD_ROWS
    tokenizer_training: TokenizerTraining | None = None
    filters: FilterConfig | None = None
    workers: int = 0

    @property
    def inputs(self) -> tuple[SourceConfig, ...]:
        """Whatever is read."""
        return (*self.sources, *self.validation)

    @property
    def evaluated(self) -> tuple[SourceConfig, ...]:
        """Whose held-out part gives `val_loss`; their weights are those of its mean."""
        return self.validation or self.sources

    @property
    def folder(self) -> Path:
        """Where the prepared data lies."""
        return Path(self.cache_dir) / "data" / self.fingerprint

    @property
    def is_streamed(self) -> bool:
        """Whether texts are cut while training."""
        return self.form == "stream"


def _files(fields: Fields) -> tuple[tuple[str, int], ...]:
    rows = fields.rows("files", "name", "size_bytes")
    return tuple((row.text("name"), row.integer("size_bytes")) for row in rows)


@dataclass(frozen=True, slots=True)
class InputConfig(JsonRecord):
    """A model, a tokenizer or a data set (`what`) that comes to `folder` of the host before the
    training.

    Sent from `source`, a folder of the client, or fetched from `hub` at `revision`, or from an
    address of an object `store`. `files` are (name, size in bytes). `repo_type`: as huggingface_hub
    has it. `etags`: of a store's files, in their order; without files the host lists those of the
    `format`. `tiktoken`: the name of an encoding that is converted instead.
    """

    what: str
    folder: str
    source: str | None = field(metadata={"key": "from"})
    hub: str | None
    revision: str | None
    files: tuple[tuple[str, int], ...] = field(metadata={"read": _files})
    size_bytes: int = 0
    listing: str | None = None
    repo_type: str = "model"
    store: str | None = None
    etags: tuple[str, ...] = ()
    format: str = "text"
    tiktoken: str | None = None
