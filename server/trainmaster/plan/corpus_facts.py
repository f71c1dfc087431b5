"""Facts of a corpus that a plan is made from: the files of its sources and their tokens."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

from trainer_runtime.core.config.data import BAD_ROWS
from trainer_runtime.core.files import corpus
from trainer_runtime.core.inputs.token_files import validation_names
from trainmaster.plan.facts import Facts

_BYTE = "byte"
# For English text and current vocabularies; other languages and code take more tokens.
_BYTES_PER_TOKEN = 4
# Of a source's files, how many a plan names.
_NAMED = 3
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class HubFiles(Facts):
    """Files of a data set on the hub at a commit, as (name, size in bytes). `license`: as its card
    names it."""

    name: str
    revision: str
    files: tuple[tuple[str, int], ...]
    license: str | None = None

    def folder(self, cache: str) -> str:
        """Where the host keeps these files: other files of the data set lie elsewhere."""
        digest = hashlib.sha256(json.dumps(self.files).encode()).hexdigest()[:8]
        name = self.name.replace("/", "--")
        return f"{cache}/datasets/{name}-{self.revision[:12]}-{digest}"

    def request(self, cache: str) -> dict[str, Any]:
        """What the host is to fetch, as the config's `inputs` has it."""
        return {
            "what": "data set",
            "folder": self.folder(cache),
            "from": None,
            "hub": self.name,
            "revision": self.revision,
            "files": [list(file) for file in self.files],
            "size_bytes": sum(size for _, size in self.files),
            "listing": None,
            "repo_type": "dataset",
        }


def revision_of(parts: object) -> str:
    """What identifies objects of a store that are described so."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]


class StoreFiles(Facts):
    """Objects of a store as (name below `url`, size in bytes), with their ETags in this order.

    `revision` identifies them. Where the host is to list them it is unlike all others, so that
    nothing that was fetched or cut before is taken for them; `unlisted` says why, and `format` what
    the source reads.
    """

    url: str
    revision: str
    format: str
    files: tuple[tuple[str, int], ...] = ()
    etags: tuple[str, ...] = ()
    unlisted: str | None = None

    def folder(self, cache: str) -> str:
        """Where the host keeps these objects."""
        name = _UNSAFE.sub("-", self.url.partition("://")[2])[-80:]
        return f"{cache}/datasets/{name}-{self.revision[:16]}"

    def request(self, cache: str) -> dict[str, Any]:
        """What the host is to fetch, as the config's `inputs` has it."""
        return {
            "what": "data",
            "folder": self.folder(cache),
            "from": None,
            "hub": None,
            "revision": None,
            "files": [list(file) for file in self.files],
            "size_bytes": sum(size for _, size in self.files),
            "listing": None,
            "store": self.url,
            "etags": list(self.etags),
            "format": self.format,
        }


class SourceFacts(Facts):
    """One source's files; `problem` states why they can't be counted.

    `path` is the spec's, with `host:` for files of the host. `sent_as`: the path of uploaded files
    below the folder of their fingerprint; None for files of the host. `examples`: rows of a data
    set, 0 for running text and if not counted. `malformed`: the problem of its rows. `format` is
    the spec's. `held_out`: it is of `data.validation`; `trained_on`: which of its files are read by
    the training, too. `own_validation`: how many files of tokens are named as validation, and
    `beside` one that lies beside a file given alone. `names`: the first files that are read of a
    folder; `undecodable`, `left_out`, `left_name`, `chats`, `compression`, `bad_rows`, `first_bad`:
    see `core.files.corpus.Listing`. `fetched`: the files that the host fetches, where the hub or an
    object store has them.
    """

    name: str
    path: str
    sent_as: str | None = None
    fetched: HubFiles | StoreFiles | None = None
    files: int = 0
    size_bytes: int = 0
    tokens: int = 0
    examples: int = 0
    format: str = corpus.TEXT
    problem: str | None = None
    malformed: str | None = None
    held_out: bool = False
    trained_on: str | None = None
    own_validation: int = 0
    beside: str | None = None
    names: tuple[str, ...] = ()
    undecodable: int = 0
    left_out: int = 0
    left_name: str | None = None
    chats: bool = False
    compression: tuple[str, ...] = ()
    bad_rows: int = 0
    first_bad: str | None = None

    @property
    def unlisted(self) -> str | None:
        """Why the plan doesn't know the files, where the host is to list them."""
        return self.fetched.unlisted if isinstance(self.fetched, StoreFiles) else None


class CorpusFacts(Facts):
    """The sources in the spec's order, then those of `data.validation`. `cached`: the host already
    has their shards; `listing`: the digest of the uploaded files; `estimated`: the tokens were not
    counted."""

    sources: tuple[SourceFacts, ...]
    fingerprint: str
    listing: str | None = None
    cached: bool = False
    estimated: bool = False

    @property
    def tokens(self) -> int:
        """Those of the sources to train on, with what of them is held out."""
        return sum(source.tokens for source in self.training)

    @property
    def examples(self) -> int:
        """Those of the sources to train on, with what of them is held out."""
        return sum(source.examples for source in self.training)

    @property
    def compression(self) -> tuple[str, ...]:
        """How some of the files are compressed."""
        return tuple(sorted({method for source in self.sources for method in source.compression}))

    @property
    def training(self) -> tuple[SourceFacts, ...]:
        return tuple(source for source in self.sources if not source.held_out)

    @property
    def validation(self) -> tuple[SourceFacts, ...]:
        return tuple(source for source in self.sources if source.held_out)

    @property
    def sent(self) -> tuple[SourceFacts, ...]:
        return tuple(source for source in self.sources if source.sent_as is not None)

    @classmethod
    def of(
        cls,
        listed: Sequence[corpus.Source],
        tokenizer: str,
        seq_len: int,
        form: str = corpus.SHARDS,
        *,
        sent_as: Mapping[str, str] | None = None,
        plain_bytes: Mapping[str, int] | None = None,
        bad_rows: float = BAD_ROWS,
        bytes_per_token: float = _BYTES_PER_TOKEN,
        filters: Mapping[str, Any] | None = None,
    ) -> Self:
        """The facts of sources whose files were listed; `sent_as`: by name, the uploaded ones.
        `tokenizer` is byte, or the digest of another one. `plain_bytes`: by name, about how much
        the compressed ones hold.

        Tokens of text are counted for the byte tokenizer: one per byte, and one at the end of each
        file. Others are estimated by `bytes_per_token`.
        """
        sent, plain = sent_as or {}, plain_bytes or {}
        estimated = bool(plain) or tokenizer != _BYTE
        estimated = estimated or any(entry.format != corpus.TEXT for entry in listed)
        per_token = 1 if tokenizer == _BYTE else bytes_per_token
        ready = {entry.name for entry in listed if entry.format == "tokens"}
        sources = tuple(
            SourceFacts(
                name=source.name,
                path=source.path,
                sent_as=sent.get(source.name),
                files=len(source.files),
                size_bytes=source.size_bytes,
                tokens=int(
                    plain.get(source.name, source.size_bytes)
                    // (2 if source.name in ready else per_token)
                )
                + len(source.files),
                format=source.format,
                held_out=source.held_out,
                own_validation=_own_validation(source),
                names=tuple(file.name for file in source.files[:_NAMED]),
            )
            for source in listed
        )
        uploads = [source for source in listed if source.name in sent]
        return cls(
            sources=sources,
            fingerprint=corpus.fingerprint(
                listed, tokenizer, seq_len, form, bad_rows=bad_rows, filters=filters
            ),
            listing=corpus.listing_digest(uploads) if uploads else None,
            estimated=estimated,
        )


def _own_validation(source: corpus.Source) -> int:
    if source.format != "tokens" or source.held_out:
        return 0
    names = [file.name for file in source.files if file.name.endswith(".bin")]
    return len(validation_names(names))
