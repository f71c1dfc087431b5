"""What a trainer of TRL is given: the tokenizer, and the model to begin with."""

from __future__ import annotations

from pathlib import Path

from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedTokenizerBase,
    TrainingArguments,
    set_seed,
)

from trainer_runtime.train.attempt.config import ConfigError, ModelConfig
from trainer_runtime.train.hf.inputs import tokenizer_source
from trainer_runtime.train.loop.framework_run import FrameworkRun

# In the run's folder: the reference of DPO is read from there again, also when resuming.
INITIAL_MODEL = Path("initial_model")


def load_tokenizer(attempt: FrameworkRun) -> PreTrainedTokenizerBase:
    """The configured tokenizer; what ends a text also fills batches, where nothing else does."""
    source = tokenizer_source(attempt)
    revision = attempt.config.model.revision
    own = source == attempt.config.model.hub
    tokenizer = AutoTokenizer.from_pretrained(
        source, revision=(revision if own else None) or "main"
    )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def initial_model(
    attempt: FrameworkRun, args: TrainingArguments, tokenizer: PreTrainedTokenizerBase
) -> str:
    """Where the model to begin with is loaded from: a folder, or a name on the hub.

    TRL loads it by itself, the reference too. One of given sizes is therefore saved first.

    Raises:
        ConfigError: the folder is missing, or model, tokenizer and lengths don't go together.
    """
    described = attempt.config.model
    if path := described.path:
        if not (Path(path) / "config.json").is_file():
            raise ConfigError(f"model.path {path} holds no model: there is no config.json in it")
        source = path
    elif described.hub:
        source = described.hub
    else:
        with args.main_process_first(desc="making the initial model"):
            source = _made(attempt, tokenizer)
    config = AutoConfig.from_pretrained(source, revision=described.revision or "main")
    _refuse_misfits(config, tokenizer, attempt.config.data.seq_len)
    return source


def _made(attempt: FrameworkRun, tokenizer: PreTrainedTokenizerBase) -> str:
    if attempt.is_main and not (INITIAL_MODEL / "config.json").is_file():
        config = _of_sizes(attempt.model_sizes(), attempt.config.data.seq_len)
        for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
            setattr(config, name, getattr(tokenizer, name))
        set_seed(attempt.config.seed)
        model = AutoModelForCausalLM.from_config(config)
        writing = INITIAL_MODEL.with_name(f".writing-{INITIAL_MODEL.name}")
        model.save_pretrained(writing)
        writing.rename(INITIAL_MODEL)
    return str(INITIAL_MODEL)


def _of_sizes(sizes: ModelConfig, seq_len: int) -> PretrainedConfig:
    if sizes.style == "llama":
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


def _refuse_misfits(
    config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase, seq_len: int
) -> None:
    text = config.get_text_config()
    if len(tokenizer) > text.vocab_size:
        raise ConfigError(
            f"the tokenizer has {len(tokenizer)} tokens, the model knows {text.vocab_size}: "
            "name the model's own tokenizer in data.tokenizer"
        )
    positions = getattr(text, "max_position_embeddings", None)
    if positions is not None and seq_len > positions:
        raise ConfigError(f"data.seq_len {seq_len} is more than the model's {positions} positions")
