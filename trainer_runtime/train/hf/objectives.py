"""What Trainer is given by the run's `objective`: the model's class, and examples of sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import transformers

from trainer_runtime.core.config.objectives import MASK_SHARE, OBJECTIVES, spans_of
from trainer_runtime.core.files.special_tokens import SpecialTokens
from trainer_runtime.core.files.tokenizer_folder import BYTE, read_tokenizer_folder
from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.data.corruption import (
    TRAINING,
    VALIDATION,
    CorruptedSequences,
    Corruption,
    SpanDenoising,
    TokenMasking,
)
from trainer_runtime.train.data.tokenizers import open_tokenizer

Examples = Any  # a data set of sequences, or several by source


def model_class(config: RunConfig) -> Any:
    """The automatic class of transformers that makes the objective's models."""
    return getattr(transformers, OBJECTIVES[config.objective].model_class)


def training_examples(config: RunConfig, model: Any, sequences: Any) -> Examples:
    """What the model learns of the run's sequences.

    Raises:
        ConfigError: the tokenizer lacks the tokens that the objective takes.
    """
    return _corrupted(config, model, sequences, TRAINING)


def validation_examples(config: RunConfig, model: Any, held_out: Any) -> Examples:
    """The same of what is held out, in one set or by source; hidden alike at every evaluation.

    Raises:
        ConfigError: see `training_examples`.
    """
    if not isinstance(held_out, Mapping):
        return _corrupted(config, model, held_out, VALIDATION)
    return {name: _corrupted(config, model, of, VALIDATION) for name, of in held_out.items()}


def _corrupted(config: RunConfig, model: Any, sequences: Any, split: str) -> Any:
    corruption_of = _CORRUPTIONS.get(config.objective)
    if corruption_of is None or sequences is None:
        return sequences
    return CorruptedSequences(sequences, corruption_of(config, model), config.seed, split)


def _masking(config: RunConfig, _: Any) -> Corruption:
    special = _special_tokens(config)
    if special.mask is None:
        raise ConfigError("objective masked: the tokenizer has no mask token, such as [MASK]")
    tokenizer = open_tokenizer(config.data.tokenizer)
    return TokenMasking(
        mask=special.mask,
        first=special.first,
        end=tokenizer.end_of_text,
        vocab_size=tokenizer.vocab_size,
        share=_share(config),
    )


def _denoising(config: RunConfig, model: Any) -> Corruption:
    special, share = _special_tokens(config), _share(config)
    needed = spans_of(config.data.seq_len, share).number
    if len(special.sentinels) < needed:
        raise ConfigError(
            f"objective denoising: data.seq_len {config.data.seq_len} has {needed} spans, and the "
            f"tokenizer {len(special.sentinels)} sentinels (<extra_id_0> and on)"
        )
    return SpanDenoising(
        sentinels=special.sentinels,
        start=model.config.decoder_start_token_id,
        end=open_tokenizer(config.data.tokenizer).end_of_text,
        share=share,
    )


def _special_tokens(config: RunConfig) -> SpecialTokens:
    if config.data.tokenizer == BYTE:
        return SpecialTokens()
    return read_tokenizer_folder(config.data.tokenizer).special


def _share(config: RunConfig) -> float:
    usual = OBJECTIVES[config.objective].mask_share
    return float(config.method_args.get(MASK_SHARE) or usual)


_CORRUPTIONS: Mapping[str, Callable[[RunConfig, Any], Corruption]] = {
    "masked": _masking,
    "denoising": _denoising,
}
