"""Plans for LitGPT, HF Trainer and TRL: their configs, and what is decided for each method."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainmaster.plan import (
    CorpusFacts,
    GpuFacts,
    HostFacts,
    ModelFacts,
    Plan,
    TorchFacts,
    plan,
)
from trainmaster.plan.decisions.architecture import parameters
from trainmaster.plan.decisions.presets import litgpt_architecture
from trainmaster.plan.spec import load_spec
from trainmaster.words.errors import TrainmasterError

Corpora = Callable[..., CorpusFacts]

SMALL = {"n_layer": 2, "n_head": 2, "d_model": 64}
# A model of a billion parameters, as its config describes it.
BILLION = ModelFacts(
    path="/weights",
    model_type="llama",
    parameters=1_100_048_384,
    n_layer=22,
    n_head=32,
    n_kv_head=4,
    d_model=2048,
    d_ff=5632,
    vocab_size=32000,
    tied=False,
    max_positions=2048,
    has_tokenizer=True,
)


@pytest.fixture
def rows(one_source: Corpora) -> CorpusFacts:
    """A thousand examples."""
    return one_source(examples=1000)


@pytest.fixture
def gpu_host(cpu_host: HostFacts) -> HostFacts:
    gpu = GpuFacts(index=0, name="NVIDIA H200", memory_gib=139.8, memory_free_gib=139.8)
    torch = TorchFacts(version="2.11.0+cu130", cuda="13.0", cuda_available=True, bf16_gpu=True)
    return cpu_host.model_copy(update={"gpus": (gpu,), "torch": torch, "disk_free_gib": 900.0})


def planned(
    framework: str,
    host: HostFacts,
    corpus: CorpusFacts,
    *sets: str,
    model: ModelFacts | None = None,
    length: str = "steps: 20",
) -> Plan:
    sizes = {"path": "/weights"} if model is not None else SMALL
    file_format = "jsonl" if framework == "trl" else "text"
    spec = load_spec(
        f"name: small\nframework: {framework}\nmodel: {sizes}\n{length}\n"
        f"data: {{sources: [{{name: main, path: /corpus, format: {file_format}}}]}}\n",
        sets,
    )
    return plan(spec, host, corpus, None, model)


def decided(made: Plan, field: str) -> tuple[Any, str, str | None]:
    (found,) = [item for item in made.decisions if item.field == field]
    return found.value, found.reason, found.source


def refusal(*arguments: Any, **named: Any) -> TrainmasterError:
    with pytest.raises(TrainmasterError) as caught:
        planned(*arguments, **named)
    return caught.value


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
def test_models_that_litgpt_names_have_the_parameters_that_it_counts(name: str, count: int) -> None:
    """As `litgpt.GPT(Config.from_name(...))` of 0.5.13 counts them."""
    model = litgpt_architecture(name, 2048)
    assert model is not None
    assert parameters(model) == count


def test_a_litgpt_model_whose_sizes_are_not_known_here_is_left_to_litgpt(
    gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    sets = ("model={preset: phi-2}",)
    made = planned("litgpt", gpu_host, rows, *sets)
    assert made.config["model"]["preset"] == "phi-2"
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


@pytest.mark.parametrize(
    ("method", "whole", "adapter"),
    [
        ("sft", 2e-5, 2e-4),
        ("dpo", 5e-7, 5e-6),
        ("kto", 5e-7, 5e-6),
        ("reward", 1e-5, 1e-4),
        ("grpo", 1e-6, 1e-5),
    ],
)
def test_the_learning_rate_of_a_method_is_the_usual_one_with_its_source(
    gpu_host: HostFacts, rows: CorpusFacts, method: str, whole: float, adapter: float
) -> None:
    given = [f"method={method}"]
    if method == "grpo":
        given.append("method_args.reward_file=/reward.py")
    for sets, rate in ((given, whole), ([*given, "adapter.r=16"], adapter)):
        made = planned("trl", gpu_host, rows, *sets, model=BILLION)
        value, reason, source = decided(made, "optimizer.lr")
        assert value == made.config["optimizer"]["lr"] == rate
        assert reason.endswith(".")
        assert source is not None


def test_a_rate_far_above_the_methods_own_is_warned_of(
    gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    sets = ("method=dpo", "optimizer.lr=1e-4")
    warnings = planned("trl", gpu_host, rows, *sets, model=BILLION).warnings
    assert any("optimizer.lr is 0.0001; for dpo auto takes 5e-07" in text for text in warnings)


def test_continuing_from_weights_is_gentle_and_warns_of_forgetting(
    gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    made = planned("hf", gpu_host, rows, model=BILLION)
    from_scratch = 2.2e-4
    rate, _, source = decided(made, "optimizer.lr")
    assert rate == pytest.approx(from_scratch / 10, rel=0.05)
    assert "Ibrahim" in str(source)
    assert any("forget" in warning for warning in made.warnings)


@pytest.mark.parametrize(
    ("examples", "epochs"), [(400, 3), (1000, 3), (1100, 2), (5000, 2), (200_000, 1)]
)
def test_epochs_follow_from_the_number_of_examples(
    gpu_host: HostFacts, one_source: Corpora, examples: int, epochs: int
) -> None:
    length = "method: dpo\nmethod_args: {epochs: auto}"
    corpus = one_source(examples=examples)
    made = planned("trl", gpu_host, corpus, model=BILLION, length=length)
    assert decided(made, "method_args.epochs")[0] == epochs
    # A twentieth is held out.
    assert made.config["steps"] == round(epochs * round(examples * 0.95) / 64)
    assert "epochs" not in made.config["method_args"]


def test_epochs_of_examples_that_nobody_counted_are_refused(
    gpu_host: HostFacts, one_source: Corpora
) -> None:
    length = "method: dpo\nmethod_args: {epochs: 2}"
    error = refusal("trl", gpu_host, one_source(), model=BILLION, length=length)
    assert (error.code, error.field) == ("INVALID_VALUE", "method_args.epochs")
    assert "steps" in error.fix


def test_every_argument_of_a_method_is_decided(gpu_host: HostFacts, rows: CorpusFacts) -> None:
    def arguments(*sets: str) -> dict[str, Any]:
        made = planned("trl", gpu_host, rows, *sets, model=BILLION)
        found: dict[str, Any] = made.config["method_args"]
        return found

    assert arguments() == {"packing": False, "assistant_only_loss": False}
    assert arguments("data.sources.main.format=text")["packing"] is True
    assert arguments("method=dpo", "method_args.loss=ipo") == {
        "beta": 0.1,
        "loss": "ipo",
        "label_smoothing": 0.0,
    }
    assert arguments("method=grpo", "method_args.reward_file=/mine/score.py") == {
        "reward_file": "reward.py",
        "num_generations": 8,
        "max_completion_length": 64,
        "beta": 0.0,
        "temperature": 1.0,
        "top_p": 1.0,
    }


@pytest.mark.parametrize(
    ("generations", "processes", "tokens"), [(8, 1, 8192), (6, 1, 7680), (6, 4, 7680), (5, 2, 7680)]
)
def test_a_step_of_grpo_is_whole_groups_for_every_process(
    cpu_host: HostFacts, rows: CorpusFacts, generations: int, processes: int, tokens: int
) -> None:
    sets = (
        "method=grpo",
        "method_args.reward_file=/reward.py",
        f"method_args.num_generations={generations}",
        f"compute.processes={processes}",
    )
    made = planned("trl", cpu_host, rows, *sets)
    batch = made.config["batch"]
    sequences = batch["micro_batch"] * batch["accumulation"] * processes
    assert sequences % generations == 0
    assert batch["tokens"] == sequences * 128 == tokens


def test_a_step_that_has_no_room_for_a_group_is_refused(
    cpu_host: HostFacts, rows: CorpusFacts
) -> None:
    sets = ("method=grpo", "method_args.reward_file=/reward.py", "batch.tokens=512")
    error = refusal("trl", cpu_host, rows, *sets)
    assert (error.code, error.field) == ("INVALID_VALUE", "batch.tokens")
    assert error.fix == "Set batch.tokens to a multiple of 1024."


def test_an_adapter_takes_a_fraction_of_memory_and_disk(
    gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    sets = ("batch.micro_batch=1",)
    whole = planned("trl", gpu_host, rows, *sets, model=BILLION).estimates
    adapter = planned("trl", gpu_host, rows, *sets, "adapter.r=16", model=BILLION).estimates
    quantized = ("adapter={r: 16, quantize: nf4}",)
    in_4_bits = planned("trl", gpu_host, rows, *sets, *quantized, model=BILLION).estimates
    assert whole.memory_gib is not None
    assert adapter.memory_gib is not None
    assert in_4_bits.memory_gib is not None
    assert whole.memory_gib > 16 * 1.1e9 / 2**30
    # The base in bf16, and 12.6 million parameters of adapters (peft counts as many).
    assert adapter.memory_gib == pytest.approx((1.1e9 * 2 + 12.6e6 * 16) / 2**30 + 0.8, abs=0.3)
    assert in_4_bits.memory_gib < adapter.memory_gib - 1
    assert whole.disk_gib is not None
    assert adapter.disk_gib is not None
    assert adapter.disk_gib < whole.disk_gib / 20


def test_a_token_costs_less_with_an_adapter_and_more_beside_a_reference(
    gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    def cost(*sets: str) -> float:
        made = planned("trl", gpu_host, rows, *sets, model=BILLION)
        flops: float = made.config["derived"]["flops_per_token"]
        return flops

    whole = cost()
    assert cost("adapter.r=16") == pytest.approx(whole * 2 / 3)
    assert cost("method=dpo") == pytest.approx(whole * 4 / 3)
    assert cost("method=dpo", "adapter.r=16") == whole


def test_kto_gets_two_rows_at_once_and_generating_is_not_estimated(
    cpu_host: HostFacts, gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    made = planned("trl", cpu_host, rows, "method=kto", "batch.tokens=256", "compute.processes=2")
    assert (made.config["batch"]["micro_batch"], made.config["batch"]["tokens"]) == (2, 512)
    assert decided(made, "batch.tokens")[1].startswith("256 rounded up to micro_batch 2")
    grpo = ("method=grpo", "method_args.reward_file=/reward.py")
    assert planned("trl", gpu_host, rows, *grpo, model=BILLION).estimates.hours is None


def test_preferences_take_a_reference_model_and_pairs(
    gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    sets = ("batch.micro_batch=1",)
    alone = planned("trl", gpu_host, rows, *sets, model=BILLION).estimates.memory_gib
    pair = planned("trl", gpu_host, rows, *sets, "method=dpo", model=BILLION).estimates.memory_gib
    assert alone is not None
    assert pair is not None
    assert pair - alone > 4 * 1.1e9 / 2**30


def test_four_bits_are_refused_on_a_cpu(cpu_host: HostFacts, rows: CorpusFacts) -> None:
    error = refusal("trl", cpu_host, rows, "adapter.quantize=nf4", model=BILLION)
    assert (error.code, error.field) == ("INVALID_VALUE", "adapter.quantize")


def test_a_logger_without_its_secret_is_warned_of(cpu_host: HostFacts, rows: CorpusFacts) -> None:
    made = planned("hf", cpu_host, rows, "tracking={wandb: {project: demo}}")
    assert any("WANDB_API_KEY" in warning for warning in made.warnings)
    offline = planned("hf", cpu_host, rows, "tracking={wandb: {mode: offline}}")
    assert not any("WANDB_API_KEY" in warning for warning in offline.warnings)


def test_an_adapters_targets_are_held_against_the_models_matrices(
    cpu_host: HostFacts, rows: CorpusFacts
) -> None:
    model = BILLION.model_copy(update={"matrices": ("embed_tokens", "q_proj", "v_proj", "lm_head")})

    def sets(target: str) -> str:
        return f"adapter={{kind: lora, targets: [v_proj, {target}]}}"

    error = refusal("trl", cpu_host, rows, sets("q_projj"), model=model)
    assert (error.code, error.field) == ("INVALID_VALUE", "adapter.targets")
    assert "'q_projj'" in error.message and "It has q_proj, v_proj." in error.message
    assert planned("trl", cpu_host, rows, sets("self_attn.q_proj"), model=model)
    assert planned("trl", cpu_host, rows, sets("q_projj"), model=BILLION)
    assert planned("trl", cpu_host, rows, "adapter={kind: lora}", model=model)
    tuned = ("method=sft", "data.sources[0].format=jsonl", sets("q_projj"))
    error = refusal("litgpt", cpu_host, rows, *tuned, model=BILLION)
    assert error.field == "adapter.targets" and "q_proj, key" in error.message


@pytest.mark.parametrize("method", ["sft", "reward"])
def test_new_weights_take_the_rate_of_pretraining_whatever_the_method(
    method: str, gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    new = decided(planned("trl", gpu_host, rows, f"method={method}"), "optimizer.lr")
    assert new[0] == 1.6e-3
    assert "its weights are new" in new[1]
    assert decided(planned("trl", gpu_host, rows, model=BILLION), "optimizer.lr")[0] == 2e-5


@pytest.mark.parametrize("method", ["dpo", "kto", "grpo"])
def test_aligning_random_weights_is_warned_of(
    method: str, gpu_host: HostFacts, rows: CorpusFacts, tmp_path: Path
) -> None:
    rewards = tmp_path / "reward.py"
    rewards.write_text("def reward(completions, **_):\n    return [0.0 for _ in completions]\n")
    sets = [f"method={method}"]
    if method == "grpo":
        sets.append(f"method_args.reward_file={rewards}")
    assert "random weights" in " ".join(planned("trl", gpu_host, rows, *sets).warnings)
    tuned = planned("trl", gpu_host, rows, *sets, model=BILLION)
    assert "random weights" not in " ".join(tuned.warnings)


@pytest.mark.parametrize(
    ("method", "metric"),
    [("sft", "val_loss"), ("dpo", "val_loss"), ("reward", "val_accuracy")],
)
def test_the_best_checkpoint_is_by_what_the_method_is_for(
    method: str, metric: str, gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    made = planned("trl", gpu_host, rows, f"method={method}")
    assert made.config["checkpoint"]["metric"] == decided(made, "checkpoint.metric")[0] == metric
    given = planned("trl", gpu_host, rows, f"method={method}", "checkpoint.metric=val_loss")
    assert given.config["checkpoint"]["metric"] == "val_loss"
