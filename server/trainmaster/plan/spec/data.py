"""The section of the spec that says what is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from trainmaster.plan.spec.annotations import (
    FilePath,
    Name,
    Positive,
    Section,
    Text,
    Width,
    setting,
)
from trainmaster.plan.spec.places import lands, only

TEXTS = ("text", "jsonl", "parquet", "arrow", "hf", "tokens")
ROWS = ("text", "jsonl", "parquet", "arrow", "hf")
_PREFERENCES = "preferences are for trl's dpo, kto and reward"
_VALIDATION = lands(
    nanogpt="prepare",
    litgpt="prepare",
    hf="prepare, eval_dataset",
    trl="eval_dataset",
)


class SourceSpec(Section):
    """One body of text among those that are mixed."""

    name: Name | None = setting(
        None,
        "What metrics call it. Null takes the file's or folder's name.",
        changes="never",
        lands=lands(
            nanogpt="shard names, val_loss/<source>",
            litgpt="shard names, val_loss/<source>",
            hf="shard names, val_loss/<source>",
            trl="val_loss/<source>",
            script="{data.NAME} in the command",
        ),
    )
    path: FilePath = setting(
        ...,
        "A file or folder of the machine that launches, which is uploaded to the host, or as "
        "host:/path a file or folder of the host. Relative paths start at the spec's folder. "
        "Hidden, empty and binary files in a folder are left out; with framework: script all but "
        "caches and secrets travel as they are.",
        changes="never",
        lands=lands(
            nanogpt="prepare",
            litgpt="prepare",
            hf="prepare",
            trl="datasets.load_dataset",
            script="{data} in the command",
        ),
    )
    format: Literal["text", "jsonl", "parquet", "arrow", "hf", "tokens", "preference"] = setting(
        "text",
        "How to read it: plain texts; rows with a column text, or for fine-tuning messages or "
        "prompt and completion; a folder that datasets saved (hf); ready token shards (tokens); "
        "rows with prompt, chosen and rejected (preference).",
        changes="never",
        lands=lands(
            nanogpt=only("prepare", *TEXTS, lacks=_PREFERENCES),
            litgpt=only("prepare, InstructionRows", *TEXTS, lacks=_PREFERENCES),
            hf=only("prepare", *TEXTS, lacks=_PREFERENCES),
            trl=only(
                "datasets.load_dataset",
                *ROWS,
                "preference",
                lacks="TRL reads rows, and makes tokens of them itself",
            ),
        ),
    )
    weight: Positive = setting(
        1.0,
        "Share of the mix, relative to the other sources' weights.",
        changes="never",
        unit="relative share",
        lands=lands(
            nanogpt="the sampler of sequences",
            litgpt="the sampler of sequences",
            hf="the sampler of sequences",
            trl="the order of the rows",
        ),
    )


class ValidationSpec(Section):
    """Files that are evaluated and never trained on."""

    name: Name | None = setting(
        None,
        "What metrics call it. Null takes the file's or folder's name.",
        changes="never",
        lands=lands(
            nanogpt="shard names, val_loss/<name>",
            litgpt="shard names, val_loss/<name>",
            hf="shard names, val_loss/<name>",
            trl="val_loss/<name>",
        ),
    )
    path: FilePath = setting(
        ...,
        "A file or folder, as in data.sources; what the sources read, too, is refused.",
        changes="never",
        lands=_VALIDATION,
    )
    format: Literal["text", "jsonl", "parquet", "arrow", "hf", "tokens", "preference"] = setting(
        "text",
        "How to read it, as in data.sources; of a saved DatasetDict, its validation or test.",
        changes="never",
        lands=lands(
            nanogpt=only("prepare", *TEXTS, lacks=_PREFERENCES),
            litgpt=only("prepare, InstructionRows", *TEXTS, lacks=_PREFERENCES),
            hf=only("prepare", *TEXTS, lacks=_PREFERENCES),
            trl=only(
                "datasets.load_dataset",
                *ROWS,
                "preference",
                lacks="TRL reads rows, and makes tokens of them itself",
            ),
        ),
    )


class DataSpec(Section):
    """What is read, and how it becomes sequences."""

    sources: list[SourceSpec] = setting(
        ...,
        "At least one source.",
        changes="never",
        lands=lands(
            nanogpt="prepare",
            litgpt="prepare",
            hf="prepare",
            trl="datasets.load_dataset",
            script="{data} in the command",
        ),
    )
    validation: list[ValidationSpec] = setting(
        [],
        "Files of one's own for val_loss, the mean over them, prepared as the sources are. Without "
        "any, a twentieth of each source is held out: of texts the end, of rows every twentieth, "
        "of ready tokens the files named as validation (val.bin).",
        changes="never",
        lands=_VALIDATION,
    )
    tokenizer: Text = setting(
        "auto",
        "byte, a folder, a name on the hub, or none for nanogpt's ready tokens. auto is the one of "
        "existing weights; none for ready tokens whose vocabulary the model's size gives; else "
        "byte: one token per byte and one for the end of a text, 257 in all, which needs no "
        "training and loses nothing.",
        changes="never",
        lands=lands(
            nanogpt="prepare",
            litgpt="tokenizer_dir",
            hf="prepare, AutoTokenizer.from_pretrained",
            trl="processing_class",
        ),
    )
    seq_len: Width = setting(
        128,
        "Tokens in a sequence, at most where rows are read. Small, so that a first training is "
        "quick.",
        changes="never",
        unit="tokens",
        lands=lands(
            nanogpt="GPT(seq_len), window of the shards",
            litgpt="train.max_seq_length, window of the shards",
            hf="window of the shards",
            trl="SFTConfig.max_length, DPOConfig.max_length, …",
        ),
    )
    prepare: Literal["auto", "box", "here", "stream"] = setting(
        "auto",
        "Where texts become shards. auto is box: the host prepares and caches them for later runs; "
        "here sends the shards, which with the byte tokenizer are twice the size of the texts; "
        "stream makes none: texts are read and tokenized while training.",
        changes="never",
        lands=lands(
            nanogpt=only(
                "prepare", "auto", "box", "here", lacks="it reads token shards: take hf to stream"
            ),
            litgpt=only(
                "prepare", "auto", "box", "here", lacks="it reads token shards: take hf to stream"
            ),
            hf="prepare, load_dataset(streaming=True)",
            trl=only(
                "datasets.load_dataset",
                "auto",
                "box",
                lacks="its rows are read where it trains, all at once",
            ),
        ),
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
        return {one.format for _, one in self.inputs}
