"""The inputs of TRL's trainers: the tokenizer and the initial model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainingArguments,
    set_seed,
)

from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.hf.existing_model import load_existing
from trainer_runtime.train.hf.inputs import tokenizer_source
from trainer_runtime.train.hf.new_model import new_model_config
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
    if described.has_weights and described.is_changed:
        with args.main_process_first(desc="changing the initial model"):
            source = _initial_model(attempt, lambda: load_existing(attempt))
    elif path := described.path:
        if not (Path(path) / "config.json").is_file():
            raise ConfigError(f"model.path {path} holds no model: config.json is missing")
        source = path
    elif described.hub:
        source = described.hub
    else:
        with args.main_process_first(desc="making the initial model"):
            source = _initial_model(attempt, lambda: _new_model(attempt, tokenizer))
    config = AutoConfig.from_pretrained(source, revision=described.revision or "main")
    _refuse_misfits(config, tokenizer, attempt.config.data.seq_len)
    return source


def _new_model(attempt: FrameworkRun, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    set_seed(attempt.config.seed)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(new_model_config(attempt, tokenizer))
    return model


def _initial_model(attempt: FrameworkRun, make: Callable[[], PreTrainedModel]) -> str:
    if attempt.is_main and not (INITIAL_MODEL / "config.json").is_file():
        model = make()
        writing = INITIAL_MODEL.with_name(f".writing-{INITIAL_MODEL.name}")
        model.save_pretrained(writing)
        writing.rename(INITIAL_MODEL)
    return str(INITIAL_MODEL)


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
