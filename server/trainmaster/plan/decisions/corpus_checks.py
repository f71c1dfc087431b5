"""Refuses data that can't be trained on, and warns of too many passes."""

from __future__ import annotations

from trainer_runtime.core.files.compression import ZSTD
from trainer_runtime.core.files.corpus import ENDINGS
from trainer_runtime.core.frameworks import framework_of
from trainmaster.errors.errors import PlanError
from trainmaster.plan.corpus_facts import CorpusFacts, SourceFacts
from trainmaster.plan.decisions.method import Form
from trainmaster.plan.facts import TokenizerFacts
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

# Muennighoff et al. 2023 (arXiv 2305.16264): up to four passes are nearly as good as fresh text.
HARMLESS_PASSES = 4


def check_corpus(spec: TrainingSpec, corpus: CorpusFacts, form: Form) -> None:
    """Check that every source has files and, for token shards, enough tokens for training and
    held-out sequences.

    Raises:
        PlanError: DATA_MISSING, DATA_EMPTY, DATA_MALFORMED, INVALID_VALUE or DATA_TOO_SHORT for
            the first source that fails.
    """
    _refuse_filters(spec, form)
    is_split = not corpus.validation
    for place, source in _placed(corpus):
        field = f"{place}.path"
        if source.problem is not None:
            raise PlanError(
                "DATA_MISSING",
                f"`{field}` is {source.path!r}: {source.problem}.",
                f"Give the path of a file or a folder of files ({_what(source)}) that can be read.",
                field=field,
            )
        empty = source.unlisted is None and (source.files == 0 or source.size_bytes == 0)
        if empty and source.malformed is None:
            raise PlanError(
                "DATA_EMPTY",
                f"`{field}` is {source.path!r}, which holds no {_what(source)} (hidden and empty "
                "files don't count).",
                f"Give a folder or file with {_what(source)} in it, or set the source's format.",
                field=field,
            )
        if source.malformed is not None:
            raise PlanError(
                "DATA_MALFORMED",
                f"`{field}` is {source.path!r}: {source.malformed}.",
                "Convert or fix the data, or set the source's format and the method to match it.",
                field=field,
            )
        if source.trained_on is not None:
            raise PlanError(
                "INVALID_VALUE",
                f"`{field}` is {source.path!r}: {source.trained_on}, and its loss would say "
                "nothing.",
                "Move it out of what data.sources reads, or name other files.",
                field=field,
            )
        if spec.data.prepare == "here" and ZSTD in source.compression:
            raise PlanError(
                "INVALID_VALUE",
                f"`data.prepare` is here, but `{field}` is compressed by zstd, which takes the "
                "package zstandard of the environment that trains.",
                "Set data.prepare to box, or to auto.",
                field="data.prepare",
            )
        if form == "shards" and not corpus.estimated:
            _check_length(field, source, spec.data.seq_len, is_split=is_split)


def _refuse_filters(spec: TrainingSpec, form: Form) -> None:
    """Filters belong to the preparation of shards from texts, in the training's environment."""
    if spec.data.filters is None:
        return
    why = None
    if form != "shards":
        why = "these rows are read as they are", "Leave them out, or pretrain with prepare: box"
    elif spec.data.prepare == "here":
        why = "`data.prepare` is here, where the client's Python prepares", "Set it to box"
    elif "tokens" in spec.data.formats:
        why = "ready tokens are no texts", "Leave them out, or give the texts"
    if why is not None:
        raise PlanError(
            "INVALID_VALUE",
            f"`data.filters` judge texts before they are tokenized, but {why[0]}.",
            f"{why[1]}.",
            field="data.filters",
        )


def refuse_without_chat_template(
    spec: TrainingSpec, corpus: CorpusFacts, tokenizer: TokenizerFacts | None
) -> None:
    """Refuse conversations that nothing writes out as text; LitGPT has prompt styles of its own.

    Raises:
        PlanError: TOKENIZER_UNUSABLE.
    """
    if not framework_of(spec.framework).has_chat_template:
        return
    if tokenizer is not None and tokenizer.chat_template in (True, None):
        return
    place = next((place for place, source in _placed(corpus) if source.chats), None)
    if place is None:
        return
    name = "byte" if tokenizer is None else tokenizer.hub or tokenizer.path or spec.data.tokenizer
    raise PlanError(
        "TOKENIZER_UNUSABLE",
        f"The rows of `{place}.path` are conversations, and the tokenizer {name!r} has no chat "
        "template to write them by.",
        "Set data.tokenizer to one that has one, such as that of the model's instruct version; put "
        "a chat_template.jinja into its folder; or give plain text in the rows.",
        field="data.tokenizer",
    )


def describe_texts(corpus: CorpusFacts, ledger: Ledger) -> None:
    """Record which files of a folder of text are read and how much compressed ones hold, and warn
    of damaged bytes and bad rows in them, and of what only the host can list."""
    for place, source in _placed(corpus):
        if source.unlisted is not None:
            ledger.warn(
                f"`{place}.path`: the host lists {source.path} in the preparation, and its size is "
                f"not known here: {source.unlisted}."
            )
        if source.left_out:
            names = ", ".join(source.names) + ", …" * (source.files > len(source.names))
            reason = f"What is not text is left out: {source.left_out:,}, such as "
            ledger.decide(
                f"{place}.path", f"{source.files:,}: {names}", f"{reason}{source.left_name}."
            )
        if source.compression:
            ledger.decide(
                f"{place}.compression",
                ", ".join(source.compression),
                f"By the files' first bytes; {source.tokens:,} tokens are estimated of a sample.",
            )
        if source.bad_rows:
            ledger.warn(
                f"`{place}.path`: {source.bad_rows:,} of the first rows can't be read and are "
                f"skipped, up to data.bad_rows: {source.first_bad}."
            )
        if source.undecodable:
            ledger.warn(
                f"`{place}.path`: {source.undecodable:,} bytes of a sample are not UTF-8; each "
                "is trained on as U+FFFD, or as it is by data.tokenizer byte."
            )


def _placed(corpus: CorpusFacts) -> list[tuple[str, SourceFacts]]:
    """The sources with their places in the spec."""
    return [
        *((f"data.sources[{index}]", source) for index, source in enumerate(corpus.training)),
        *((f"data.validation[{index}]", source) for index, source in enumerate(corpus.validation)),
    ]


def warn_of_passes(tokens: int, corpus: CorpusFacts, ledger: Ledger) -> None:
    """Warn where training reads the corpus too often."""
    if not corpus.tokens:
        return
    passes = tokens / corpus.tokens
    if passes > HARMLESS_PASSES:
        count = f"about {corpus.tokens:,}" if corpus.estimated else f"{corpus.tokens:,}"
        ledger.warn(
            f"Training reads a corpus of {count} tokens about {passes:,.0f} times; "
            "beyond 4 times it overfits. More text or fewer steps would help."
        )


def _what(source: SourceFacts) -> str:
    endings = ENDINGS.get(source.format)
    return "text" if endings is None else " or ".join(f"*{ending}" for ending in endings)


def _check_length(field: str, source: SourceFacts, seq_len: int, *, is_split: bool) -> None:
    parts = 2 if is_split else 1
    least = parts * (seq_len + 1)
    if source.tokens < least:
        held_out = ", half of them held out" if is_split else ""
        most = max(1, source.tokens // parts - 1)
        raise PlanError(
            "DATA_TOO_SHORT",
            f"`{field}` is {source.path!r} with {source.tokens:,} tokens; sequences of "
            f"`data.seq_len` {seq_len} take at least {least:,}{held_out}.",
            f"Give more text, or set data.seq_len to at most {most}.",
            field=field,
        )
