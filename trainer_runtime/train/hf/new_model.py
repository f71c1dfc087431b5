"""The configuration of a model with new weights, in the words of transformers."""

from __future__ import annotations

from transformers import GPT2Config, LlamaConfig, PretrainedConfig, PreTrainedTokenizerBase

from trainer_runtime.train.attempt.config import ModelConfig
from trainer_runtime.train.loop.framework_run import FrameworkRun

_SPECIAL_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


def new_model_config(attempt: FrameworkRun, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
    """A model of the run's sizes, with the tokenizer's special tokens.

    Raises:
        ConfigError: a size is missing, or they don't go together.
    """
    sizes, seq_len = attempt.model_sizes(), attempt.config.data.seq_len
    config = _llama(sizes, seq_len) if sizes.style == "llama" else _gpt2(sizes, seq_len)
    for name in _SPECIAL_TOKENS:
        setattr(config, name, getattr(tokenizer, name))
    return config


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
    )
