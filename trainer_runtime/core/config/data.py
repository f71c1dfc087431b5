"""What it is trained on, and what has to come to the host first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainer_runtime.core.decoding import Fields, JsonRecord


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """One data source; weights count relative to their sum. `path`: where the host reads it.
    `held_out`: it is of `data.validation`."""

    name: str
    path: str = ""
    format: str = "text"
    weight: float = 1.0
    held_out: bool = False

    @classmethod
    def of(cls, fields: Fields, *, held_out: bool = False) -> SourceConfig:
        return cls(
            name=fields.text("name"),
            path=fields.text("path", ""),
            format=fields.text("format", "text"),
            weight=fields.number("weight", 1.0),
            held_out=held_out,
        )


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


@dataclass(frozen=True, slots=True)
class DataConfig(JsonRecord):
    """`tokenizer` is `byte`, a folder of the host, or `none` for ready tokens below `vocab_size`;
    `tokenizer_digest` identifies it.

    `prepare` says where the texts are tokenized (`box`, `here`, `stream`), `form` what the trainer
    reads. `by_content`: the fingerprint is of the files' content, not of their times.
    `validation`: files for `val_loss`; without any, a part of each source is held out.
    """

    sources: tuple[SourceConfig, ...]
    tokenizer: str
    seq_len: int
    fingerprint: str
    cache_dir: str
    tokenizer_digest: str | None = None
    prepare: str = "box"
    form: str | None = None
    skip: tuple[Skip, ...] = ()
    upload: UploadConfig | None = None
    by_content: bool = False
    vocab_size: int | None = None
    validation: tuple[SourceConfig, ...] = ()

    @classmethod
    def of(cls, fields: Fields) -> DataConfig:
        upload = fields.find_section("upload")
        return cls(
            sources=tuple(map(SourceConfig.of, fields.sections("sources"))),
            tokenizer=fields.text("tokenizer", "byte"),
            seq_len=fields.integer("seq_len", 0),
            fingerprint=fields.text("fingerprint", ""),
            cache_dir=fields.text("cache_dir", ""),
            tokenizer_digest=fields.find_text("tokenizer_digest"),
            prepare=fields.text("prepare", "box"),
            form=fields.find_text("form"),
            skip=tuple(map(Skip.of, fields.sections("skip"))),
            upload=UploadConfig.of(upload) if upload is not None and upload.values else None,
            by_content=fields.flag("by_content", False),
            vocab_size=fields.find_integer("vocab_size"),
            validation=tuple(
                SourceConfig.of(one, held_out=True) for one in fields.sections("validation")
            ),
        )

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
    """A model or a tokenizer (`what`) that comes to `folder` of the host before the training.

    Sent from `source`, a folder of the client, or fetched from `hub` at `revision`. `files` are
    (name, size in bytes).
    """

    what: str
    folder: str
    source: str | None = field(metadata={"key": "from"})
    hub: str | None
    revision: str | None
    files: tuple[tuple[str, int], ...] = field(metadata={"read": _files})
    size_bytes: int = 0
    listing: str | None = None
