"""What a nanogpt run leaves, as transformers loads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.plan.rendered import load_script, write_script

from trainer_runtime.core.config import DataConfig, ModelConfig
from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.files.manifest import Manifest
from trainer_runtime.core.files.model_folder import read_model_folder
from trainer_runtime.train.checkpoints.folder import write_folder
from trainer_runtime.train.checkpoints.hf_export import (
    can_be_exported,
    config_of,
    exported,
    imported,
)
from trainer_runtime.train.checkpoints.restore import model_tensors
from trainer_runtime.train.data import tokenizers

_LENGTH = 16
_DATA = DataConfig.of(Fields({"sources": [], "tokenizer": "byte"}, "data"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("style", "parts"),
    [
        ("gpt2", {}),
        ("gpt2", {"activation": "relu2"}),
        ("llama", {}),
        ("llama", {"activation": "geglu", "rope_base": 500.0, "window": 3}),
        ("modern", {}),
        ("modern", {"activation": "gelu", "rope_base": 500.0}),
    ],
)
@pytest.mark.parametrize("n_kv_head", [4, 2])
def test_transformers_loads_it_and_gives_the_same_logits(
    tmp_path: Path, style: str, parts: dict[str, Any], n_kv_head: int
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = ModelConfig(2, 4, n_kv_head, 32, 48, 257, style, **parts)
    script = made_script(tmp_path, style)
    torch.manual_seed(0)
    ours = script.GPT(model, _LENGTH).eval()
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    weights = model_tensors(ours)
    write_folder(
        tmp_path / "final",
        {"model": exported(weights, model)},
        {"config": config_of(model, _LENGTH, tokenizers.end_of_text(_DATA))},
        Manifest(1, 1, 0.0, {}, (), "", ()),
        lambda: None,
        others=tokenizers.files_of(_DATA),
    )
    assert read_model_folder(str(tmp_path / "final")).problem is None
    theirs, found = AutoModelForCausalLM.from_pretrained(
        tmp_path / "final", output_loading_info=True
    )
    assert not any(found.values())
    tokens = AutoTokenizer.from_pretrained(tmp_path / "final")("to learn", return_tensors="pt")
    with torch.no_grad():
        expected = ours(tokens.input_ids)[0]
        logits = theirs.eval()(**tokens).logits[0, -1]
    assert expected.abs().max() > 1
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    again = imported(exported(weights, model), model)
    assert again.keys() == weights.keys()
    assert all(torch.equal(again[name], weights[name]) for name in weights)


@pytest.mark.parametrize(
    ("style", "parts"),
    [
        ("gpt2", {"norm": "rmsnorm"}),
        ("gpt2", {"activation": "swiglu"}),
        ("gpt2", {"window": 4}),
        ("llama", {"activation": "relu2"}),
        ("modern", {"window": 4}),
        ("modern", {"value_embeddings": True}),
        ("modern", {"ngram_embeddings": 64}),
    ],
)
def test_a_model_that_transformers_lacks_keeps_its_own_names(
    tmp_path: Path, style: str, parts: dict[str, Any]
) -> None:
    model = ModelConfig(2, 2, 2, 16, 32, 257, style, **parts)
    weights = model_tensors(made_script(tmp_path, style).GPT(model, _LENGTH))
    assert not can_be_exported(weights, model)


def test_a_model_that_somebody_has_changed_keeps_its_own_names(tmp_path: Path) -> None:
    model = ModelConfig(1, 2, 2, 16, 32, 257, "gpt2")
    changed = made_script(tmp_path, "gpt2").GPT(model, _LENGTH)
    assert can_be_exported(model_tensors(changed), model)
    changed.gate = torch.nn.Linear(4, 4)
    assert not can_be_exported(model_tensors(changed), model)


def made_script(folder: Path, style: str) -> Any:
    write_script(folder, {"framework": "nanogpt", "model": {"style": style}})
    return load_script(folder)
