"""What a Trainer for pretraining is given: the tokenizer's place, and the data in exact order."""

from __future__ import annotations

from pathlib import Path

from trainer_runtime.core import byte_tokenizer
from trainer_runtime.train.config import ConfigError
from trainer_runtime.train.data import Corpus
from trainer_runtime.train.framework_run import FrameworkRun
from trainer_runtime.train.sequences import HeldOutSequences, TokenSequences, read_position


def tokenizer_source(attempt: FrameworkRun) -> str:
    """What AutoTokenizer loads: a folder, or a name on the hub."""
    named = attempt.config.data.tokenizer
    return str(attempt.folder / byte_tokenizer.FOLDER) if named == "byte" else named


def training_sequences(
    attempt: FrameworkRun, vocab_size: int, checkpoint: Path | None
) -> TokenSequences:
    """The run's training sequences, to go on with after the checkpoint.

    Raises:
        ConfigError: the tokens don't fit the model, or the position the data.
        ShardsError: the shards are missing or damaged.
    """
    config = attempt.config
    corpus = _corpus(attempt)
    if corpus.vocab_size > vocab_size:
        raise ConfigError(
            f"model.vocab_size {vocab_size} is less than the tokenizer's {corpus.vocab_size}"
        )
    batch = config.batch
    return TokenSequences(
        corpus,
        config,
        batch.micro_batch * batch.accumulation * attempt.world_size,
        attempt.step,
        read_position(checkpoint),
    )


def held_out(attempt: FrameworkRun) -> HeldOutSequences | dict[str, HeldOutSequences] | None:
    """The held-out sequences: of one source, or by source; None if nothing is evaluated."""
    config = attempt.config
    if not config.evaluation.batches:
        return None
    corpus = _corpus(attempt)
    sets = {
        name: HeldOutSequences(shard, config.evaluation.batches, config.batch.micro_batch)
        for name, shard in zip(corpus.names, corpus.validation, strict=True)
    }
    return next(iter(sets.values())) if len(sets) == 1 else sets


def _corpus(attempt: FrameworkRun) -> Corpus:
    data = attempt.config.data
    form = attempt.config.document["data"].get("form", "shards")
    if form != "shards":
        raise ConfigError(f"data.form {form!r} can't be trained here; use shards")
    return Corpus.open(data.folder, [source.name for source in data.sources], data.seq_len)
