"""The table of published models: its counts, its names, and what each framework makes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.plan.framework_plans import planned

from trainmaster.errors.errors import SpecError
from trainmaster.plan import CorpusFacts, HostFacts
from trainmaster.plan.architecture_counts import counted
from trainmaster.plan.named_models import NamedModel, find_model, named_models, nearest_models
from trainmaster.plan.spec import load_spec
from trainmaster.plan.transformers_architectures import whole_config

# One of each architecture that counts in a way of its own.
_SAMPLE = ("gpt2-124m", "pythia-410m", "llama-3.2-1b", "qwen3-30b-a3b", "gemma-3-1b")
_SAMPLE += ("phi-4-mini", "olmo-2-7b", "mixtral-8x7b", "smollm3-3b", "deepseek-v2-lite")


def configuration(model: NamedModel) -> dict[str, Any]:
    return {**model.in_words_of_transformers(), "vocab_size": model.vocab_size}


@pytest.mark.parametrize("model", named_models(), ids=lambda model: model.name)
def test_our_count_of_a_published_model_is_the_published_one(model: NamedModel) -> None:
    measured = counted(model.arch, whole_config(model.arch, configuration(model)), model.seq_len)
    assert measured is not None
    assert measured[2] == pytest.approx(model.parameters, rel=0.005)
    assert model.seq_len <= model.context
    assert model.source


@pytest.mark.engine
@pytest.mark.parametrize("name", _SAMPLE)
def test_transformers_counts_a_published_model_alike(name: str) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    model = find_model(name)
    assert model is not None
    config = AutoConfig.for_model(model.arch, **configuration(model))
    with torch.device("meta"):
        made = AutoModelForCausalLM.from_config(config)
    assert made.num_parameters() == model.parameters


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Llama 3 8B", "llama-3-8b"),
        ("Qwen3-0.6B-Base", "qwen3-0.6b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("gpt2-xl", "gpt2-1558m"),
        ("pythia_160m-deduped", "pythia-160m"),
    ],
)
def test_a_model_is_known_by_each_of_its_names(name: str, model: str) -> None:
    named = find_model(name)
    assert named is not None
    assert named.name == model


def test_no_two_models_share_a_name() -> None:
    of_models = (
        {name.lower() for name in (model.name, *model.aliases, *model.hub)}
        for model in named_models()
    )
    times = Counter(name for names in of_models for name in names)
    assert set(times.values()) == {1}


def test_the_page_lists_every_model() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/models.md").read_text()
    assert [model.name for model in named_models() if f"`{model.name}`" not in page] == []


def test_nearest_names_are_found_for_an_unknown_one() -> None:
    assert nearest_models("lama-7b")[0] == "llama-7b"
    assert nearest_models("zzzzzz") == []


def _refused(framework: str, preset: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        load_spec(
            f"name: a\nframework: {framework}\nmodel: {{preset: {preset}}}\nsteps: 20\n"
            "data: {sources: [{path: /corpus}]}\n"
        )
    return caught.value


def test_an_unknown_preset_is_refused_with_the_nearest_names() -> None:
    error = _refused("hf", "lama-7b")
    assert (error.code, error.field) == ("INVALID_VALUE", "model.preset")
    assert "Did you mean llama-7b" in error.message


@pytest.mark.parametrize(
    ("framework", "preset", "able"),
    [
        ("nanogpt", "qwen3-0.6b", "litgpt or hf"),
        ("litgpt", "llama-30b", "nanogpt or hf"),
        ("hf", "falcon-7b", "litgpt"),
    ],
)
def test_a_framework_that_lacks_a_model_names_those_that_have_it(
    framework: str, preset: str, able: str
) -> None:
    error = _refused(framework, preset)
    assert error.field == "model.preset"
    assert able in error.fix


@pytest.mark.parametrize(
    ("framework", "preset", "parameters"),
    [
        ("hf", "llama-7b", 6_738_415_616),
        ("hf", "qwen3-30b-a3b", 30_532_122_624),
        ("hf", "google/gemma-3-1b-pt", 999_885_952),
        ("litgpt", "llama-7b", 6_738_415_616),
        ("nanogpt", "tinyllama", 1_100_048_384),
    ],
)
def test_a_preset_is_planned_with_the_sizes_of_its_model(
    framework: str,
    preset: str,
    parameters: int,
    gpu_host: HostFacts,
    one_source: Callable[..., CorpusFacts],
) -> None:
    gpus = 1 if framework == "nanogpt" else 32
    sets = (f"model={{preset: {preset}}}", "compute.gpu=h200", f"compute.gpus={gpus}")
    made = planned(framework, gpu_host, one_source(), *sets)
    assert made.estimates.parameters == parameters
    if framework == "hf":
        model = find_model(preset)
        assert model is not None
        assert made.config["model"]["arch"] == model.arch
        assert made.config["model"]["config"]["vocab_size"] == model.vocab_size
