"""Changes of existing weights before they are trained: positions, vocabulary, attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoConfig, PretrainedConfig

from trainer_runtime.core.config import ModelConfig
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.hf.inputs import weights_source
from trainer_runtime.train.hf.objectives import model_class
from trainer_runtime.train.loop.framework_run import FrameworkRun


def rotate_by(config: PretrainedConfig, model: ModelConfig, seq_len: int) -> None:
    """Sets the base and the scaling of rotary positions, where the run asks for them.

    Raises:
        ConfigError: the model has no rotary positions, or several kinds.
    """
    if model.rope_base is None and model.rope_scaling is None:
        return
    text = config.get_text_config()
    positions = getattr(text, "max_position_embeddings", None)
    parameters = getattr(text, "rope_parameters", None)
    is_older = parameters is None and hasattr(text, "rope_theta")  # before transformers 5
    if positions is None or not (is_older or isinstance(parameters, dict)):
        raise ConfigError(f"model.rope_…: {config.model_type} has no rotary positions")
    if parameters and any(isinstance(value, dict) for value in parameters.values()):
        raise ConfigError(f"model.rope_…: {config.model_type} rotates each kind of layer its way")
    scaling: dict[str, Any] = {}
    if model.rope_scaling is not None:
        kind, factor = model.rope_scaling.kind, model.rope_scaling.factor
        scaling = {"rope_type": kind, "factor": factor}
        if kind != "linear":
            scaling["original_max_position_embeddings"] = positions
        text.max_position_embeddings = max(positions, seq_len, round(positions * factor))
    if is_older:
        text.rope_theta = model.rope_base or text.rope_theta
        text.rope_scaling = scaling or text.rope_scaling
    else:
        base = {} if model.rope_base is None else {"rope_theta": model.rope_base}
        text.rope_parameters = {**(parameters or {}), **base, **scaling}


def with_attention(attempt: FrameworkRun, make: Callable[[str | None], Any]) -> Any:
    """A model with the run's implementation of attention, which is printed; None has transformers
    choose its fused one or, where an architecture lacks that, the eager one.

    Raises:
        ConfigError: the architecture or the environment lacks the implementation.
    """
    attention = attempt.config.model.attention
    try:
        model = make(attention)
    except (ImportError, ValueError) as error:
        if attention is None:
            raise
        raise ConfigError(f"model.attention {attention}: {error}") from error
    if attempt.is_main:
        print(f"attention: {model.config._attn_implementation}", flush=True)
    return model


def load_existing(attempt: FrameworkRun) -> Any:
    """The weights that the run continues from in fp32, as its configuration changes them; the
    arguments set the precision of computation.

    Raises:
        ConfigError: weights are missing; see `rotate_by`, `with_attention`.
    """
    source, revision = weights_source(attempt)
    config = AutoConfig.from_pretrained(source, revision=revision)
    rotate_by(config, attempt.config.model, attempt.config.data.seq_len)
    kind = model_class(attempt.config)

    def load(attention: str | None) -> Any:
        model, found = kind.from_pretrained(
            source,
            revision=revision,
            config=config,
            dtype=torch.float32,
            attn_implementation=attention,
            output_loading_info=True,
        )
        missing = {name for name, _ in model.named_parameters()} & {*found["missing_keys"]}
        if missing:  # which would be random
            lacks = f"lacks weights of {type(model).__name__}, such as {min(missing)}"
            raise ConfigError(f"{source} {lacks}")
        return model

    model = with_attention(attempt, load)
    extend_vocabulary(model, attempt.config.model)
    return model


@torch.no_grad()
def extend_vocabulary(model: Any, sizes: ModelConfig) -> None:
    """Gives the embeddings as many rows as the run's vocabulary has; new ones are the mean of the
    others, so that no new token stands out (Hewitt 2021, "Initializing new word embeddings")."""
    rows = model.get_input_embeddings().weight.shape[0]
    if not sizes.extend_vocab or sizes.vocab_size <= rows:
        return
    model.resize_token_embeddings(sizes.vocab_size, mean_resizing=False)
    for layer in (model.get_input_embeddings(), model.get_output_embeddings()):
        for tensor in filter(torch.is_tensor, (layer.weight, getattr(layer, "bias", None))):
            tensor[rows:] = tensor[:rows].mean(dim=0)
