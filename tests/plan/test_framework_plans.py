"""Plans for LitGPT, HF Trainer and TRL: their configs and their models."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.plan.framework_plans import BILLION, planned, refusal

from trainmaster.plan import (
    CorpusFacts,
    HostFacts,
    ModelFacts,
)

Corpora = Callable[..., CorpusFacts]


@pytest.mark.parametrize("framework", ["litgpt", "hf", "trl"])
def test_the_config_of_a_framework_has_the_agreed_keys(
    framework: str, cpu_host: HostFacts, rows: CorpusFacts
) -> None:
    config = planned(framework, cpu_host, rows).config
    assert config["model"] == {
        "n_layer": 2,
        "n_head": 2,
        "n_kv_head": 2,
        "d_model": 64,
        "d_ff": 192 if framework == "litgpt" else 256,
        "vocab_size": 320,
        "style": "llama" if framework == "litgpt" else "gpt2",
        "dropout": 0.0,
        "preset": None,
        "path": None,
        "hub": None,
        "revision": None,
        "attention": None,
        "extend_vocab": False,
        "rope_base": None,
        "rope_scaling": None,
    }
    assert config["method"] == ("sft" if framework == "trl" else "pretrain")
    assert config["data"]["form"] == ("dataset" if framework == "trl" else "shards")
    assert config["data"]["tokenizer"] == "byte"
    assert config["adapter"] is None
    assert config["tracking"] == {}
    compute = config["compute"]
    assert (compute["processes"], compute["strategy"]) == (1, "single")
    assert compute["activation_checkpointing"] is False
    assert "auto" not in compute.values()


def test_streamed_texts_are_passed_to_the_trainer(cpu_host: HostFacts, rows: CorpusFacts) -> None:
    data = planned("hf", cpu_host, rows, "data.prepare=stream").config["data"]
    assert (data["form"], data["prepare"]) == ("stream", "stream")


def test_existing_weights_bring_their_sizes_and_place(
    gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    made = planned("hf", gpu_host, rows, model=BILLION)
    model = made.config["model"]
    assert (model["n_layer"], model["n_kv_head"], model["vocab_size"]) == (22, 4, 32000)
    assert model["path"] == "/weights"
    assert made.estimates.parameters == BILLION.parameters


def test_sequences_longer_than_the_models_positions_are_refused(
    gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    error = refusal("hf", gpu_host, rows, "data.seq_len=4096", model=BILLION)
    assert (error.code, error.field) == ("INVALID_VALUE", "data.seq_len")
    assert "2048" in error.fix


def test_a_model_of_unknown_size_is_planned_carefully_and_without_estimates(
    gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    made = planned("hf", gpu_host, rows, model=ModelFacts(path="/weights"))
    known = made.estimates.model_dump(exclude_none=True, exclude={"ranges"})
    assert known == {}
    assert made.config["batch"]["micro_batch"] == 1
    assert made.config["derived"]["flops_per_token"] is None
    assert made.gpu.recommended == "unknown"


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("pythia-14m", 14_067_712),
        ("pythia-160m", 162_322_944),
        ("pythia-12b", 11_846_072_320),
        ("tiny-llama-1.1b", 1_100_048_384),
        ("meta-llama/Llama-3.2-1B", 1_498_482_688),
        ("Llama-3.1-70B", 70_553_706_496),
        ("Mistral-7B-v0.1", 7_241_732_096),
        ("SmolLM2-135M", 162_826_560),
    ],
)
def test_models_that_litgpt_names_have_the_parameters_that_it_counts(
    name: str, count: int, gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    """As `litgpt.GPT(Config.from_name(...))` of 0.5.13 counts them."""
    sets = (f"model={{preset: {name}}}", "compute.gpu=h200", "compute.gpus=32")
    assert planned("litgpt", gpu_host, rows, *sets).estimates.parameters == count


def test_a_litgpt_model_whose_sizes_are_not_known_here_is_left_to_litgpt(
    gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    sets = ("model={preset: falcon-7b}",)
    made = planned("litgpt", gpu_host, rows, *sets)
    assert made.config["model"]["preset"] == "falcon-7b"
    assert made.estimates.parameters is None
    known = planned("litgpt", gpu_host, rows, "model={preset: pythia-14m}")
    assert known.estimates.parameters == 14_067_712
    assert known.config["model"]["n_layer"] == 6


def test_gpt2_has_its_biases_where_hugging_face_makes_it(
    gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    sets = ("model={preset: gpt2-124m}", "data.seq_len=1024")
    assert planned("hf", gpu_host, rows, *sets).estimates.parameters == 124_439_808
    # LitGPT's positions are rotary, without parameters of their own.
    litgpt = planned("litgpt", gpu_host, rows, *sets, "model.style=gpt2").estimates.parameters
    assert litgpt == 124_337_664 - 1024 * 768
