"""Texts that are kept apart within a sequence, by transformers' own masks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.plan.architectures import SMALL
from torch import Tensor

from trainer_runtime.core.config import RunConfig
from trainer_runtime.train.attempt.config import ConfigError

END = 256
CONFIG = RunConfig.parse(
    {"data": {"tokenizer": "byte", "sources": [], "seq_len": 8, "document_masks": True}}
)


class Attempt:
    """What a collator reads of an attempt."""

    config = CONFIG


def model_of(arch: str) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(arch, **SMALL[arch], vocab_size=320)
    return AutoModelForCausalLM.from_config(config).eval()


def collated(model: Any) -> Any:
    from trainer_runtime.train.hf.documents import collator_of

    return collator_of(Attempt(), model)  # type: ignore[arg-type]


def test_positions_restart_with_each_text() -> None:
    from trainer_runtime.train.hf.documents import positions_in_texts

    tokens = torch.tensor([[1, 2, END, 3, END, END, 4], [END, 1, 2, 3, 4, 5, 6]])
    assert positions_in_texts(tokens, END).tolist() == [
        [0, 1, 0, 1, 0, 0, 1],
        [0, 1, 2, 3, 4, 5, 6],
    ]


@torch.no_grad()
def logits(model: Any, batch: dict[str, Any]) -> Tensor:
    given: Tensor = model(**{key: batch[key] for key in batch if key != "labels"}).logits
    return given[:, -1]


@pytest.mark.parametrize("arch", ["llama", "gpt2", "qwen3", "mixtral", "qwen3_moe", "gemma2"])
def test_a_text_is_read_as_if_it_stood_alone(arch: str) -> None:
    model = model_of(arch)
    collate = collated(model)
    rows = ([1, 2, 3, END, 5, 6], [7, 8, 9, END, 5, 6], [7, END, 9, END, 5, 6])
    items = [{"input_ids": torch.tensor(row), "labels": torch.tensor(row)} for row in rows]
    first, second, third = logits(model, collate(items))
    alone = model(torch.tensor([[END, 5, 6]])).logits[0, -1]
    for text in (first, second, third):
        torch.testing.assert_close(text, alone, rtol=1e-4, atol=1e-5)
    together = model(torch.tensor([rows[0]])).logits[0, -1]
    assert not torch.allclose(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("arch", ["bloom", "falcon"])
def test_an_architecture_that_cannot_keep_texts_apart_is_refused(arch: str) -> None:
    with pytest.raises(ConfigError, match=f"{arch} in this transformers can't keep texts apart"):
        collated(model_of(arch))
