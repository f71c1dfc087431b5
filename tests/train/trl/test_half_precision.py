"""Adapters of a base in 4 bits, where the training is in fp16: a T4 or a V100."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.train.trl_config import trl_config

pytestmark = pytest.mark.engine


def test_fp16_gets_adapters_whose_gradients_its_scaler_can_divide(
    model: Path, tmp_path: Path
) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    from trainer_runtime.train.trl.training import hold_in_fp32

    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float16)
    adapted: Any = get_peft_model(base, LoraConfig("CAUSAL_LM", r=4, target_modules="all-linear"))
    for weight in adapted.parameters():  # as TRL does for a base in 4 bits
        weight.data = weight.data.bfloat16() if weight.requires_grad else weight.data
    trainer = Trainer(adapted, TrainingArguments(str(tmp_path), use_cpu=True, report_to=[]))
    hold_in_fp32(trainer)
    dtypes = {(weight.requires_grad, weight.dtype) for weight in adapted.parameters()}
    assert dtypes == {(True, torch.float32), (False, torch.float16)}


@pytest.mark.parametrize(
    ("precision", "computes"), [("fp16", torch.float16), ("bf16", torch.bfloat16)]
)
def test_four_bits_compute_in_the_precision_of_the_training(
    precision: str, computes: torch.dtype
) -> None:
    from support.train.preference_runs import LORA

    from trainer_runtime.core.config import RunConfig
    from trainer_runtime.train.attempt.adapter import quantization

    changes = {"precision": precision, "compute": {"device": "cuda"}}
    adapter = LORA | {"quantize": "nf4"}
    config = RunConfig.parse(trl_config("sft", **changes, adapter=adapter))
    held: Any = quantization(config)
    assert held.bnb_4bit_compute_dtype == computes
