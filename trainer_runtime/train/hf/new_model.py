"""The configuration of a model with new weights, in the words of transformers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from transformers import (
    AutoConfig,
    GPT2Config,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedTokenizerBase,
)

from trainer_runtime.core.config.objectives import POSITIONS_FROM_PADDING
from trainer_runtime.train.attempt.config import ConfigError, ModelConfig, sizes_of
from trainer_runtime.train.hf.existing_model import rotate_by
from trainer_runtime.train.hf.objectives import model_class
from trainer_runtime.train.loop.framework_run import FrameworkRun

_SPECIAL_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


def new_model_config(attempt: FrameworkRun, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
    """A model of the run's sizes, with the tokenizer's special tokens.

    Raises:
        ConfigError: a size is missing, or they don't go together; the installed transformers lacks
            the architecture, or one of its fields.
    """
    described, seq_len = attempt.config.model, attempt.config.data.seq_len
    if described.arch is not None:
        config = _by_name(described.arch, described.config, model_class(attempt.config))
    else:
        sizes = sizes_of(attempt.config)
        config = _llama(sizes, seq_len) if sizes.style == "llama" else _gpt2(sizes, seq_len)
    rotate_by(config, described, seq_len)
    for name in _SPECIAL_TOKENS:
        setattr(config, name, getattr(tokenizer, name))
    if config.is_encoder_decoder:  # as T5's, whose decoder begins with the token that fills batches
        starts = (config.pad_token_id, config.eos_token_id)
        config.decoder_start_token_id = next(token for token in starts if token is not None)
    if config.model_type in POSITIONS_FROM_PADDING:
        _make_room_for_positions(config, seq_len)
    return config


def _make_room_for_positions(config: PretrainedConfig, seq_len: int) -> None:
    """For models whose positions begin behind the number of the padding token."""
    if config.pad_token_id is None:
        raise ConfigError(f"model.arch {config.model_type} takes a tokenizer with a padding token")
    needed = config.pad_token_id + 1 + seq_len
    config.max_position_embeddings = max(config.max_position_embeddings, needed)


def _by_name(arch: str, values: Mapping[str, object], auto: Any) -> PretrainedConfig:
    # Of a field that it doesn't have a configuration makes an attribute that nothing reads.
    try:
        kind = type(AutoConfig.for_model(arch))
        parameters = inspect.signature(kind.__init__).parameters
        for name in sorted(values.keys() - parameters.keys()):
            if f'getattr(config, "{name}"' not in _source_of_model(kind, auto):
                raise ValueError(f"it has no field {name}")
        return AutoConfig.for_model(arch, **values)
    except (ValueError, TypeError, KeyError, AttributeError, ImportError) as error:
        raise ConfigError(f"model.arch {arch}, model.config: {error}") from error


def _source_of_model(kind: type[PretrainedConfig], auto: Any) -> str:
    """Where the model of a configuration reads fields that the configuration may lack."""
    return inspect.getsource(inspect.getmodule(auto._model_mapping[kind]) or kind)


def _llama(sizes: ModelConfig, seq_len: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=sizes.vocab_size,
        hidden_size=sizes.d_model,
        intermediate_size=sizes.d_ff,
        num_hidden_layers=sizes.n_layer,
        num_attention_heads=sizes.n_head,
        num_key_value_heads=sizes.n_kv_head,
        max_position_embeddings=seq_len,
        attention_dropout=sizes.dropout,
    )


def _gpt2(sizes: ModelConfig, seq_len: int) -> GPT2Config:
    return GPT2Config(
        vocab_size=sizes.vocab_size,
        n_positions=seq_len,
        n_embd=sizes.d_model,
        n_inner=sizes.d_ff,
        n_layer=sizes.n_layer,
        n_head=sizes.n_head,
        embd_pdrop=sizes.dropout,
        resid_pdrop=sizes.dropout,
        attn_pdrop=sizes.dropout,
        # gelu_new as one operator: its parts would keep four more tensors of this width.
        activation_function="gelu_pytorch_tanh",
    )
