"""The models of the nanogpt scripts: what each of their parts does to the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.plan.rendered import load_script, write_script
from torch import Tensor

from trainer_runtime.core.config import ModelConfig
from trainer_runtime.train.nanogpt.layers import NgramEmbedding

END, LENGTH = 30, 12
TOKENS = torch.arange(LENGTH) % 7


def made(folder: Path, style: str, **parts: Any) -> Any:
    write_script(folder, {"framework": "nanogpt", "model": {"style": style}})
    torch.manual_seed(0)
    model = load_script(folder).GPT(ModelConfig(2, 2, 1, 16, 24, 32, style, **parts), LENGTH).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


@torch.no_grad()
def last_logits(model: Any, tokens: Tensor) -> Tensor:
    logits: Tensor = model(tokens[None])[0]
    return logits


@pytest.mark.parametrize(
    ("style", "parts"),
    [("gpt2", {}), ("llama", {}), ("modern", {}), ("modern", {"ngram_embeddings": 64})],
)
def test_a_document_mask_hides_the_text_before(
    tmp_path: Path, style: str, parts: dict[str, int]
) -> None:
    model = made(tmp_path, style, **parts)
    text = TOKENS.clone()
    text[6] = END
    other = text.clone()
    other[:6] += 1
    assert not torch.equal(last_logits(model, text), last_logits(model, other))
    model.document_end = END
    assert torch.equal(last_logits(model, text), last_logits(model, other))
    of_same_text = text.clone()
    of_same_text[7] += 1
    assert not torch.equal(last_logits(model, text), last_logits(model, of_same_text))


@pytest.mark.parametrize("style", ["gpt2", "llama", "modern"])
def test_a_window_of_two_layers_reaches_as_far_as_both(tmp_path: Path, style: str) -> None:
    model = made(tmp_path, style, window=3)  # the last token sees 2 before, and those 2 more
    hidden, seen = TOKENS.clone(), TOKENS.clone()
    hidden[: LENGTH - 5] += 1
    seen[LENGTH - 5] += 1
    assert torch.equal(last_logits(model, TOKENS), last_logits(model, hidden))
    assert not torch.equal(last_logits(model, TOKENS), last_logits(model, seen))


def test_a_modern_model_begins_with_an_even_guess_within_its_cap(tmp_path: Path) -> None:
    write_script(tmp_path, {"framework": "nanogpt", "model": {"style": "modern"}})
    new = load_script(tmp_path).GPT(ModelConfig(2, 2, 1, 16, 24, 32, "modern"), LENGTH).eval()
    assert not last_logits(new, TOKENS).any()
    strong = made(tmp_path, "modern")
    strong.output.weight.data *= 1000
    assert last_logits(strong, TOKENS).abs().max() == 15


def test_value_embeddings_change_what_a_model_says(tmp_path: Path) -> None:
    model = made(tmp_path, "modern", value_embeddings=True)
    before = last_logits(model, TOKENS)
    assert list(model.value_embeddings) == ["1"]
    model.value_embeddings["1"].weight.data.zero_()
    assert not torch.equal(before, last_logits(model, TOKENS))


def test_equal_last_tokens_name_equal_rows() -> None:
    table = NgramEmbedding(1 << 20, 4)
    text = torch.tensor([[5, 6, 7, 8, 9, 6, 7, 8]])
    two, three, four = table.row_numbers(text, None)[0].T
    assert two[3] == two[7]
    assert three[3] == three[7]
    assert four[3] != four[7]  # 5 stands before the one, 9 before the other
    begun = table.row_numbers(text, 6)[0]  # 6 begins a document
    assert torch.equal(begun[3], begun[7])
    assert torch.equal(begun[1:4], table.row_numbers(text[:, 1:], None)[0, :3])


def test_ngram_embeddings_begin_with_zeros_and_change_what_a_model_says(tmp_path: Path) -> None:
    model = made(tmp_path, "modern", ngram_embeddings=64)
    before = last_logits(model, TOKENS)
    model.initialize(16)
    assert not model.ngram_embedding.weight.any()
    strong = made(tmp_path, "modern", ngram_embeddings=64)
    strong.ngram_embedding.weight.data.zero_()
    assert not torch.equal(before, last_logits(strong, TOKENS))


def test_each_block_takes_a_learned_share_of_the_embedding(tmp_path: Path) -> None:
    model = made(tmp_path, "modern", ngram_embeddings=64)
    assert len(model.embedding_shares) == len(model.blocks)
    before = last_logits(model, TOKENS)
    model.embedding_shares.data += 1.0
    assert not torch.equal(before, last_logits(model, TOKENS))
    assert made(tmp_path, "modern").embedding_shares is None
