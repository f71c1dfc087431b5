"""The section of the spec that says what is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from trainer_runtime.core.config.data import BAD_ROWS
from trainer_runtime.core.config.tokenizer_training import USUAL_CHARACTERS
from trainmaster.plan.fields.annotations import (
    Auto,
    Count,
    FilePath,
    Name,
    Positive,
    Section,
    Share,
    Text,
    Width,
    Workers,
    setting,
)

_CHARACTERS: Literal["char"] = "char"
SourceFormat = (
    Literal["text", "jsonl", "parquet", "arrow", "hf", "tokens", "preference"]
    | Literal["webdataset", "mds", "tfrecord"]
)


class SourceSpec(Section):
    """One body of text among those that are mixed."""

    name: Name | None = setting(
        None,
        "What metrics call it. Null takes the file's or folder's name.",
        changes="never",
    )
    path: FilePath = setting(
        ...,
        "A file or folder of the machine that launches, which is uploaded to the host, or as "
        "host:/path a file or folder of the host, or as hf://OWNER/NAME@REVISION#CONFIG:SPLIT a "
        "data set on the hub, or s3://BUCKET/KEY (gs://, az://) objects of a store, which the host "
        "fetches. Relative paths start at the spec's folder. "
        "Hidden, empty and binary files in a folder are left out; text and JSON lines may be "
        "compressed by gzip, xz or zstd. With framework: script all but "
        "caches and secrets travel as they are.",
        changes="never",
    )
    format: SourceFormat = setting(
        "text",
        "How to read it: plain texts; rows with a column text, or for fine-tuning messages or "
        "prompt and completion; a folder that datasets saved (hf); ready token shards (tokens); "
        "rows with prompt, chosen and rejected (preference); shards of WebDataset, MosaicML "
        "Streaming (mds) or TFRecord, whose samples are such rows. Of a data set on the hub "
        "parquet, if none is given.",
        changes="never",
    )
    weight: Positive = setting(
        1.0,
        "Share of the mix, relative to the other sources' weights.",
        changes="resume",
        unit="relative share",
    )
    license: Text | None = setting(
        None,
        "Under which licence it is used, for the run's data card. Null takes what the hub's card "
        "names.",
        changes="never",
    )


class ValidationSpec(Section):
    """Files that are evaluated and never trained on."""

    name: Name | None = setting(
        None,
        "What metrics call it. Null takes the file's or folder's name.",
        changes="never",
    )
    path: FilePath = setting(
        ...,
        "A file or folder, as in data.sources; what the sources read, too, is refused.",
        changes="never",
    )
    format: SourceFormat = setting(
        "text",
        "How to read it, as in data.sources; of a saved DatasetDict, its validation or test.",
        changes="never",
    )


class TrainedTokenizerSpec(Section):
    """A tokenizer that the host trains on the sources before it cuts them."""

    train: Literal["bpe", "unigram", "wordpiece", "char"] = setting(
        ...,
        "Its kind: bpe and unigram of bytes, which lose nothing; wordpiece as BERT's, with case; "
        "char, a token for each of the most frequent characters.",
        changes="never",
    )
    size: Width | None = setting(
        None,
        "The vocabulary with the special tokens; what the training leaves free stays unused. Null "
        "is 256 for char; the other kinds need it.",
        changes="never",
        unit="tokens",
    )


class FilterSpec(Section):
    """Which texts are left out before they are tokenized, by filters of datatrove that need no
    download."""

    min_chars: Count | None = setting(
        None,
        "Texts with fewer characters are dropped.",
        changes="never",
        unit="characters",
    )
    gopher_quality: bool = setting(
        False,
        "Gopher's rules for English prose: 50 to 100,000 words of 3 to 10 letters on average, few "
        "symbols, bullets and ellipses, at least two stop words.",
        changes="never",
    )
    c4_quality: bool = setting(
        False,
        "C4's rules: lines without punctuation at their end, with fewer than three words or about "
        "cookies and JavaScript go; texts with braces, lorem ipsum or fewer than five sentences "
        "are dropped.",
        changes="never",
    )
    dedup: Literal["exact", "minhash"] | None = setting(
        None,
        "exact keeps the first of equal texts of all sources. minhash also drops near duplicates, "
        "of which about .72 is equal, and reads the sources twice.",
        changes="never",
    )
    pii: Literal["mask"] | None = setting(
        None,
        "mask replaces addresses of mail and public IP addresses by examples.",
        changes="never",
    )


class DataSpec(Section):
    """What is read, and how it becomes sequences."""

    sources: list[SourceSpec] = setting(
        ...,
        "At least one source.",
        changes="never",
    )
    validation: list[ValidationSpec] = setting(
        [],
        "Files of one's own for val_loss, the mean over them, prepared as the sources are. Without "
        "any, a twentieth of each source is held out: of texts the end, of rows every twentieth, "
        "of ready tokens the files named as validation (val.bin).",
        changes="never",
    )
    tokenizer: Text | TrainedTokenizerSpec = setting(
        "auto",
        "byte, a folder, a name on the hub, tiktoken:NAME, char or {train, size} for one that is "
        "trained on the sources, or none for nanogpt's ready tokens. auto is the one of "
        "existing weights; none for ready tokens whose vocabulary the model's size gives; else "
        "byte: one token per byte and one for the end of a text, 257 in all, which needs no "
        "training and loses nothing.",
        changes="never",
    )
    seq_len: Width = setting(
        128,
        "Tokens in a sequence, at most where rows are read. Small, so that a first training is "
        "quick.",
        changes="never",
        unit="tokens",
    )
    document_masks: bool = setting(
        False,
        "Whether attention stops where a text ended, instead of seeing all of its sequence. Off: "
        "whole sequences are faster, and the loss is nearly the same.",
        changes="never",
    )
    bad_rows: Share = setting(
        BAD_ROWS,
        "Share of rows that may be skipped in the preparation because they are not JSON or the "
        "method can't learn from them; the report names the first one. 0 stops at the first.",
        changes="never",
        unit="share of the rows",
    )
    filters: FilterSpec | None = setting(
        None,
        "Filters of the texts to train on, applied by the host before they are tokenized; "
        "validation files are kept as they are. Texts of over a million characters are dropped.",
        changes="never",
    )
    workers: Auto | Workers = setting(
        "auto",
        "Processes of each rank that read sequences and rows ahead, with the same losses. auto is "
        "0; 2 pay where the metric `data_time_share` is above .01, as fast GPUs make it.",
        changes="resume",
        unit="processes",
    )
    prepare: Literal["auto", "box", "here", "stream"] = setting(
        "auto",
        "Where texts become shards. auto is box: the host prepares and caches them for later runs; "
        "here sends the shards, which with the byte tokenizer are twice the size of the texts; "
        "stream makes none: texts are read and tokenized while training.",
        changes="never",
    )

    @property
    def trained_tokenizer(self) -> TrainedTokenizerSpec | None:
        """The tokenizer that the host trains; None where it is there."""
        named = self.tokenizer
        if isinstance(named, TrainedTokenizerSpec) and named.train != _CHARACTERS:
            return named
        if named == _CHARACTERS or isinstance(named, TrainedTokenizerSpec):
            size = None if isinstance(named, str) else named.size
            return TrainedTokenizerSpec(train=_CHARACTERS, size=size or USUAL_CHARACTERS)
        return None

    @property
    def inputs(self) -> Iterator[tuple[str, SourceSpec | ValidationSpec]]:
        """Whatever is read, each with its field."""
        for index, source in enumerate(self.sources):
            yield f"data.sources[{index}]", source
        for index, held_out in enumerate(self.validation):
            yield f"data.validation[{index}]", held_out

    @property
    def formats(self) -> set[str]:
        """The formats of whatever is read."""
        return {source.format for _, source in self.inputs}
