"""What is decided for each method: its rate, its arguments, its memory, its metric."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.plan.framework_plans import BILLION, decided, planned, refusal

from trainmaster.plan import (
    CorpusFacts,
    HostFacts,
)
from trainmaster.plan.decisions.disk import disk_gib
from trainmaster.plan.spec import load_spec

Corpora = Callable[..., CorpusFacts]


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


def test_who_mixes_texts_is_not_warned_of_forgetting(
    gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    sources = '[{"name": "main", "path": "/corpus"}, {"name": "web", "path": "/web"}]'
    both = (*rows.sources, rows.sources[0].model_copy(update={"name": "web", "path": "/web"}))
    mixed = rows.model_copy(update={"sources": both})
    made = planned("hf", gpu_host, mixed, f"data.sources={sources}", model=BILLION)
    assert not any("forget" in warning for warning in made.warnings)


def test_an_optimizer_does_not_inherit_the_rate_of_another(
    gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    error = refusal("hf", gpu_host, rows, "optimizer.name=sgd", model=BILLION)
    assert (error.code, error.field) == ("INVALID_VALUE", "optimizer.lr")
    sets = ("optimizer.name=sgd", "optimizer.lr=0.1")
    made = planned("hf", gpu_host, rows, *sets, model=BILLION)
    assert made.config["optimizer"]["lr"] == 0.1
    assert not any("diverge" in warning for warning in made.warnings)
    made = planned("hf", gpu_host, rows, "optimizer.name=adafactor", model=BILLION)
    assert "Adafactor" in str(decided(made, "optimizer.lr")[2])


@pytest.mark.parametrize(
    ("examples", "epochs"), [(400, 3), (1000, 3), (1100, 2), (5000, 2), (200_000, 1)]
)
def test_epochs_follow_from_the_number_of_examples(
    gpu_host: HostFacts, one_source: Corpora, examples: int, epochs: int
) -> None:
    length = "method: dpo\nmethod_args: {epochs: auto}"
    corpus = one_source(examples=examples)
    sets = ("data.seq_len=128", "batch.tokens=8192")
    made = planned("trl", gpu_host, corpus, *sets, model=BILLION, length=length)
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
        made = planned("trl", gpu_host, rows, "data.seq_len=128", *sets, model=BILLION)
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
    sets = ("batch.micro_batch=1", "data.seq_len=128")
    whole = planned("trl", gpu_host, rows, *sets, model=BILLION).estimates
    adapter = planned("trl", gpu_host, rows, *sets, "adapter.r=16", model=BILLION).estimates
    quantized = ("adapter={r: 16, quantize: nf4}",)
    in_4_bits = planned("trl", gpu_host, rows, *sets, *quantized, model=BILLION).estimates
    assert whole.memory_gib is not None
    assert adapter.memory_gib is not None
    assert in_4_bits.memory_gib is not None
    assert whole.memory_gib > 16 * 1.1e9 / 2**30
    assert adapter.trained_parameters == 12_615_680
    assert whole.trained_parameters is None
    # The base in bf16, and 12.6 million parameters of adapters (peft counts as many).
    assert adapter.memory_gib == pytest.approx((1.1e9 * 2 + 12.6e6 * 16) / 2**30 + 0.8, abs=0.3)
    assert in_4_bits.memory_gib < adapter.memory_gib - 1
    assert whole.disk_gib is not None
    assert adapter.disk_gib is not None
    assert adapter.disk_gib < whole.disk_gib / 20


def test_the_final_model_of_litgpt_takes_its_disk_twice(rows: CorpusFacts) -> None:
    spec = (
        "{name: a, framework: %s, model: {preset: gpt2-124m}, data: {sources: [{path: a}]}, "
        "steps: 10}"
    )
    by = {
        framework: disk_gib(load_spec(spec % framework), 10**9, 12.0, 10, rows)
        for framework in ("litgpt", "hf")
    }
    assert by["litgpt"] - by["hf"] == pytest.approx(4e9 / 2**30)


def test_a_token_costs_less_with_an_adapter_and_more_beside_a_reference(
    gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    def cost(*sets: str) -> float:
        made = planned("trl", gpu_host, rows, *sets, model=BILLION)
        flops: float = made.config["derived"]["flops_per_token"]
        return flops

    whole = cost()
    # Attention's products have no weights, whose gradients an adapter saves: 12·L·d·T stay.
    attention = 12 * 22 * 2048 * 2048
    assert cost("adapter.r=16") == pytest.approx((whole - attention) * 2 / 3 + attention)
    assert cost("method=dpo") == pytest.approx(whole * 4 / 3)
    assert cost("method=dpo", "adapter.r=16") == pytest.approx(whole + attention / 3)


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
