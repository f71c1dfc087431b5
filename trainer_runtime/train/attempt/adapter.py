"""The low-rank adapter that is trained in place of a model's own weights, for peft."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from peft import LoraConfig
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig
from transformers.pytorch_utils import Conv1D

from trainer_runtime.train.attempt.config import ConfigError, RunConfig


def lora_config(config: RunConfig, model: str, task: str = "CAUSAL_LM") -> LoraConfig:
    """The configured adapter; `model`: a folder or a hub's name.

    `task` is peft's: SEQ_CLS keeps a head of its own, which is trained whole and saved with it.

    Raises:
        ConfigError: a target is not a linear module of the model.
    """
    adapter = config.adapter
    if adapter is None:
        raise ConfigError("adapter: the script trains one, the configuration has none")
    targets = adapter.targets
    if targets is not None:
        _refuse_unknown(targets, model, config.model.revision)
    return LoraConfig(
        task_type=task,
        r=adapter.r,
        lora_alpha=adapter.alpha,  # type: ignore[arg-type]  # any number will do
        target_modules="all-linear" if targets is None else list(targets),
    )


def quantization(config: RunConfig) -> BitsAndBytesConfig | None:
    """How the frozen weights are kept: in 4 bits (Dettmers et al. 2023, QLoRA), or as they are.

    Raises:
        ConfigError: 4 bits need a CUDA device and bitsandbytes.
    """
    adapter = config.adapter
    if adapter is None or adapter.quantize is None:
        return None
    _refuse_without_bitsandbytes(config.compute.device)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=adapter.quantize,
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.float16 if config.precision == "fp16" else torch.bfloat16,
    )


def _refuse_unknown(targets: Sequence[str], model: str, revision: str | None) -> None:
    with torch.device("meta"):
        architecture = AutoConfig.from_pretrained(model, revision=revision)
        empty = AutoModelForCausalLM.from_config(architecture)
    output = empty.get_output_embeddings()
    linear_names = {
        name.rpartition(".")[2]: None
        for name, module in empty.named_modules()
        if isinstance(module, torch.nn.Linear | Conv1D) and module is not output
    }
    for target in targets:
        if target.rpartition(".")[2] not in linear_names:
            raise ConfigError(
                f"adapter.targets: the model has no linear module {target!r} to adapt; "
                f"it has {', '.join(linear_names)}; `auto` takes them all"
            )


def _refuse_without_bitsandbytes(device: str) -> None:
    remedy = "leave adapter.quantize out"
    if device != "cuda":
        raise ConfigError(f"adapter.quantize needs a CUDA device, this run has {device}: {remedy}")
    try:
        import bitsandbytes  # noqa: F401  # only whether it can be
    except ImportError as error:
        raise ConfigError(
            f"adapter.quantize needs bitsandbytes ({error}): install it, or {remedy}"
        ) from None
