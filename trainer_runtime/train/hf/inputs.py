"""What a Trainer for pretraining is given: the tokenizer's place, and the data in exact order."""

from __future__ import annotations

from pathlib import Path

from trainer_runtime.core.frameworks import byte_tokenizer
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.data.batches import Corpus
from trainer_runtime.train.data.sequences import (
    HeldOutSequences,
    StreamedItems,
    TokenSequences,
    read_position,
)
from trainer_runtime.train.data.stream import VALIDATION, StreamedSequences, stream_dataset
from trainer_runtime.train.data.tokenizers import open_tokenizer
from trainer_runtime.train.loop.framework_run import FrameworkRun

HeldOut = HeldOutSequences | StreamedSequences


def tokenizer_source(attempt: FrameworkRun) -> str:
    """What AutoTokenizer loads: a folder, or a name on the hub."""
    named = attempt.config.data.tokenizer
    return str(attempt.folder / byte_tokenizer.FOLDER) if named == "byte" else named


def weights_source(attempt: FrameworkRun) -> tuple[str, str]:
    """What AutoModel loads, a folder or a name on the hub, and the revision there.

    Raises:
        ConfigError: the configuration names neither.
    """
    described = attempt.config.document["model"]
    source = described.get("path") or described.get("hub")
    if not source:
        raise ConfigError("model.path or model.hub is missing")
    return str(source), described.get("revision") or "main"


def training_sequences(
    attempt: FrameworkRun, vocab_size: int, checkpoint: Path | None
) -> TokenSequences | StreamedItems:
    """The run's training sequences, starting after the checkpoint.

    Raises:
        ConfigError: the tokens don't fit the model, or the position the data.
        ShardsError: the shards are missing or damaged.
    """
    config = attempt.config
    position = read_position(checkpoint)
    if _is_streamed(attempt):
        _refuse_tokens_beyond(vocab_size, open_tokenizer(config.data.tokenizer).vocab_size)
        return StreamedItems(config, attempt.step, position)
    corpus = _corpus(attempt)
    _refuse_tokens_beyond(vocab_size, corpus.vocab_size)
    return TokenSequences(corpus, config, attempt.step, position)


def held_out(attempt: FrameworkRun) -> HeldOut | dict[str, HeldOut] | None:
    """The held-out sequences: of one source, or by source; None if nothing is evaluated."""
    config = attempt.config
    chosen = config.evaluation
    if not chosen.batches:
        return None
    sets: dict[str, HeldOut] = {}
    if _is_streamed(attempt):
        for source in config.data.evaluated:
            sets[source.name] = stream_dataset(config, VALIDATION, source=source.name)
    else:
        corpus = _corpus(attempt)
        for name, shard in zip(corpus.validation_names, corpus.validation, strict=True):
            sets[name] = HeldOutSequences(shard, chosen.batches, chosen.batch_size)
    return next(iter(sets.values())) if len(sets) == 1 else sets


def _is_streamed(attempt: FrameworkRun) -> bool:
    return attempt.config.data.is_streamed


def _refuse_tokens_beyond(vocab_size: int, tokens: int) -> None:
    if tokens > vocab_size:
        raise ConfigError(f"model.vocab_size {vocab_size} is less than the tokenizer's {tokens}")


def _corpus(attempt: FrameworkRun) -> Corpus:
    data = attempt.config.data
    return Corpus.open(data.folder, [source.name for source in data.sources], data.seq_len)
