"""The data card of a run: what it was trained on, as `data_card.json` and `data_card.md`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.decoding import SparseRecord
from trainer_runtime.core.protocol.figures import number_text, share_text, size_text
from trainer_runtime.core.protocol.followed_files import DATA_CARD

PAGE = "data_card.md"
# What of a source's files is digested.
CONTENT, LISTING = "content", "names and sizes"

__all__ = ["CONTENT", "DATA_CARD", "LISTING", "PAGE", "CardSource", "DataCard", "render_card"]


@dataclass(frozen=True, slots=True)
class CardSource(SparseRecord):
    """A source as it was prepared. What nobody knows is None.

    `path`: as the spec named it; of a data set on the hub its name, at the commit `revision`.
    `share`: of the mix, by weight. `sha256`: over the files' names and the digests of their
    content, or over names and sizes, as `digest_of` says. `tokens` and `held_out_tokens`: of
    shards. `bad_rows` of its `rows` were skipped, `first_bad` the first. Of its `texts` filters
    dropped some, by filter, and masked something in others.
    """

    name: str
    path: str
    format: str
    is_validation: bool = False
    share: float | None = None
    license: str | None = None
    revision: str | None = None
    files: int | None = None
    size_bytes: int | None = None
    sha256: str | None = None
    digest_of: str | None = None
    documents: int | None = None
    tokens: int | None = None
    held_out_tokens: int | None = None
    rows: int | None = None
    bad_rows: int | None = None
    first_bad: str | None = None
    texts: int | None = None
    dropped: Mapping[str, int] | None = None
    masked: int | None = None


@dataclass(frozen=True, slots=True)
class DataCard(SparseRecord):
    """What a run was trained on. `mixes`: of its phases, where they differ from the weights."""

    run_id: str
    name: str
    method: str
    fingerprint: str
    validation: str
    tokenizer: str
    tokenizer_revision: str | None = None
    tokenizer_sha256: str | None = None
    seq_len: int = 0
    sources: tuple[CardSource, ...] = ()
    mixes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def render_card(card: DataCard) -> str:
    """The card as Markdown."""
    lines = [f"# Data of {card.name or card.run_id}", ""]
    revision = f" at {card.tokenizer_revision}" if card.tokenizer_revision else ""
    digest = f" (SHA-256 {card.tokenizer_sha256})" if card.tokenizer_sha256 else ""
    lines += [
        f"- Run: {card.run_id}, method {card.method}",
        f"- Tokenizer: {card.tokenizer}{revision}{digest}",
        f"- Sequences: up to {number_text(card.seq_len)} tokens",
        f"- Validation: {card.validation}",
        f"- Fingerprint: {card.fingerprint}",
    ]
    for phase, mix in card.mixes.items():
        shares = ", ".join(f"{name} {share_text(share, 1)}" for name, share in mix.items())
        lines.append(f"- Mix in the phase {phase}: {shares}")
    for source in card.sources:
        lines += ["", f"## {source.name}", "", *_source(source)]
    return "\n".join(lines) + "\n"


def _source(source: CardSource) -> Iterator[str]:
    at = f" at commit {source.revision}" if source.revision else ""
    yield f"- Source: {source.path}{at}, format {source.format}"
    yield f"- Licence: {source.license or 'not given'}"
    if source.is_validation:
        yield "- Use: validation only"
    elif source.share is not None:
        yield f"- Share of the mix, by weight: {share_text(source.share, 1)}"
    if source.files is not None and source.size_bytes is not None:
        yield f"- Files: {number_text(source.files)}, {size_text(source.size_bytes)}"
    if source.sha256 is not None:
        yield f"- SHA-256 of {source.digest_of}: {source.sha256}"
    for what, count in (
        ("Documents", source.documents),
        ("Tokens to train on", source.tokens),
        ("Tokens held out", source.held_out_tokens),
        ("Rows", source.rows),
    ):
        if count is not None:
            yield f"- {what}: {number_text(count)}"
    if source.bad_rows:
        yield f"- Bad rows skipped: {number_text(source.bad_rows)}; the first: {source.first_bad}"
    if source.texts is not None:
        dropped = source.dropped or {}
        named = ", ".join(f"{name} {number_text(count)}" for name, count in dropped.items())
        yield f"- Dropped by filters, of {number_text(source.texts)} texts: {named or 'none'}"
    if source.masked:
        yield f"- Texts with masked addresses: {number_text(source.masked)}"
