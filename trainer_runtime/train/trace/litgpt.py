"""The steps of LitGPT's pretraining of a new model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accelerate.utils import convert_outputs_to_fp32
from litgpt.config import Config
from litgpt.model import GPT
from litgpt.utils import chunked_cross_entropy
from torch import Tensor

from trainer_runtime.core.answers.traced import MemoryTrace
from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.frameworks.litgpt import pretraining
from trainer_runtime.train.litgpt.fabric import recompute_blocks
from trainer_runtime.train.trace.framework_steps import traced_steps


def trace(config: RunConfig, _: Path) -> MemoryTrace:
    """Of the model that `litgpt pretrain` makes by litgpt.yaml."""
    values = pretraining(config)
    sizes, train = values["model_config"], values["train"]
    model: Any = GPT(Config(**sizes) if sizes else Config.from_name(values["model_name"]))
    if train["tie_embeddings"]:
        model.transformer.wte.weight = model.lm_head.weight
    model.max_seq_length = config.data.seq_len
    if config.compute.activation_checkpointing:
        recompute_blocks(model)

    def loss(logits: Any, targets: Tensor) -> Tensor:
        mean: Tensor = chunked_cross_entropy(logits, targets)
        return mean

    return traced_steps(config, model, loss, convert_outputs_to_fp32)
