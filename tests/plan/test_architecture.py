from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.plan.rendered import load_script, write_script

from trainmaster.plan.architecture import (
    Architecture,
    Style,
    flops_per_token,
    parameters,
)
from trainmaster.plan.named_models import find_model

# Counts of the published checkpoints, which have biases; ours, like nanoGPT's, has none.
PUBLISHED_GPT2 = {
    "gpt2-124m": 124_439_808,
    "gpt2-350m": 354_823_168,
    "gpt2-774m": 774_030_080,
    "gpt2-1558m": 1_557_611_200,
}


def gpt2(preset: str) -> Architecture:
    model = find_model(preset)
    assert model is not None
    sizes = (model.n_layer, model.n_head, model.n_kv_head, model.d_model, model.d_ff)
    return Architecture("gpt2", *sizes, model.vocab_size, model.context)


@pytest.mark.parametrize("preset", sorted(PUBLISHED_GPT2))
def test_parameters_are_the_published_ones_less_their_biases(preset: str) -> None:
    model = gpt2(preset)
    # Per block: two norms, qkv (3 d), projection, MLP (4 d and d); and the last norm.
    biases = (model.n_layer * (2 + 3 + 1 + 4 + 1) + 1) * model.d_model
    assert parameters(model) == PUBLISHED_GPT2[preset] - biases


def test_parameters_of_a_llama_are_the_published_ones() -> None:
    # Llama 3 8B and TinyLlama 1.1B, from their model cards' configurations.
    llama3 = Architecture("llama", 32, 32, 8, 4096, 14336, 128256, 8192)
    tiny = Architecture("llama", 22, 32, 4, 2048, 5632, 32000, 2048)
    assert parameters(llama3) == 8_030_261_248
    assert parameters(tiny) == 1_100_048_384


@pytest.mark.parametrize("alias", ["gpt2-medium", "gpt2-large", "gpt2-xl"])
def test_an_alias_has_the_sizes_of_its_preset(alias: str) -> None:
    number = {"gpt2-medium": "350m", "gpt2-large": "774m", "gpt2-xl": "1558m"}[alias]
    assert find_model(alias) == find_model(f"gpt2-{number}") is not None


def test_flops_leave_out_what_multiplies_no_matrix() -> None:
    model = gpt2("gpt2-124m")
    matmul = parameters(model) - 1024 * 768
    assert flops_per_token(model) == 6 * matmul + 12 * 12 * 768 * 1024
    untied = replace(model, style="llama")
    matmul = parameters(untied) - 50257 * 768
    assert flops_per_token(untied) == 6 * matmul + 12 * 12 * 768 * 1024
    # Frozen weights save their own gradients, and none of attention's products.
    assert flops_per_token(untied, frozen=True) == 4 * matmul + 12 * 12 * 768 * 1024


@pytest.mark.parametrize(
    ("style", "n_kv_head", "parts"),
    [
        ("gpt2", 4, {}),
        ("gpt2", 1, {"activation": "swiglu", "norm": "rmsnorm_no_gain"}),
        ("llama", 2, {}),
        ("llama", 2, {"activation": "relu2", "window": 8}),
        ("modern", 4, {}),
        ("modern", 2, {"value_embeddings": True, "norm": "layernorm"}),
        ("modern", 4, {"ngram_embeddings": 128}),
    ],
)
def test_the_count_is_that_of_the_model_that_trains(
    style: Style, n_kv_head: int, parts: dict[str, Any], tmp_path: Path
) -> None:
    from trainer_runtime.train.attempt.config import ModelConfig

    sizes = Architecture(style, 3, 4, n_kv_head, 64, 192, 320, 32, **parts)
    config = ModelConfig(3, 4, n_kv_head, 64, 192, 320, style, **parts)
    write_script(tmp_path, {"framework": "nanogpt", "model": {"style": style}})
    model = load_script(tmp_path).GPT(config, seq_len=32)
    assert sum(weight.numel() for weight in model.parameters()) == parameters(sizes)
