"""The section of the spec that says what is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from trainer_runtime.core.config.data import BAD_ROWS
from trainmaster.plan.fields.annotations import (
    FilePath,
    Name,
    Positive,
    Section,
    Share,
    Text,
    Width,
    setting,
)

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
    tokenizer: Text = setting(
        "auto",
        "byte, a folder, a name on the hub, or none for nanogpt's ready tokens. auto is the one of "
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
        "Share of rows that may be skipped in the preparation because they are not JSON or have no "
        "text under the column; the report names the first one. 0 stops at the first.",
        changes="never",
        unit="share of the rows",
    )
    prepare: Literal["auto", "box", "here", "stream"] = setting(
        "auto",
        "Where texts become shards. auto is box: the host prepares and caches them for later runs; "
        "here sends the shards, which with the byte tokenizer are twice the size of the texts; "
        "stream makes none: texts are read and tokenized while training.",
        changes="never",
    )

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
