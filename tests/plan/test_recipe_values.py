"""Length of sequences and size of steps by a model's size, and what departs from them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainmaster.plan import CorpusFacts, HostFacts, ModelFacts, Plan, TokenizerFacts, plan
from trainmaster.plan.decisions.shapes import facts_of
from trainmaster.plan.frameworks.arguments import EPOCHS
from trainmaster.plan.named_models import find_model
from trainmaster.plan.spec import TrainingSpec, load_spec

_LARGE = ("model.n_layer=12", "model.n_head=12", "model.d_model=768")


_GPUS = ("framework=hf", "compute.gpu=h100", "compute.gpus=8")


@pytest.fixture
def made(
    make_spec: Callable[..., TrainingSpec],
    cpu_host: HostFacts,
    one_source: Callable[..., CorpusFacts],
) -> Callable[..., Plan]:
    corpus = one_source(size_bytes=10**12, tokens=10**12)
    host = cpu_host.model_copy(update={"memory_available_gib": 60.0, "disk_free_gib": 1e6})
    return lambda *sets, tokenizer=None: plan(make_spec(*sets), host, corpus, tokenizer=tokenizer)


def values(plan: Plan) -> tuple[int, int]:
    return plan.config["data"]["seq_len"], plan.config["batch"]["tokens"]


@pytest.mark.parametrize(
    ("sets", "chosen"),
    [
        ((), (128, 8192)),
        (("data.seq_len=16384",), (16384, 16384)),
        (("batch.micro_batch=65",), (128, 65 * 128)),
        ((*_LARGE, "data.seq_len=16384"), (16384, 1 << 19)),
        ((*_LARGE, "data.seq_len=4096", "batch.micro_batch=4"), (4096, 1 << 19)),
        ((*_LARGE,), (1024, 1 << 19)),
        ((*_LARGE, "data.seq_len=512"), (512, 1 << 19)),
        ((*_LARGE, "batch.tokens=512"), (512, 512)),
        ((*_LARGE, "batch.micro_batch=8"), (1024, 1 << 19)),
        ((*_LARGE, "steps=null", "tokens=100M"), (1024, 1 << 16)),
        ((*_GPUS, "model={preset: llama-7b}"), (2048, 1 << 22)),
        ((*_GPUS, "model={preset: llama-2-7b}"), (4096, 1 << 22)),
        ((*_GPUS, "model={preset: pythia-1.4b}"), (2048, 1 << 20)),
    ],
)
def test_a_large_model_is_trained_as_published_ones_of_its_size(
    made: Callable[..., Plan], sets: tuple[str, ...], chosen: tuple[int, int]
) -> None:
    assert values(made(*sets)) == chosen


def test_a_chosen_value_comes_with_its_source(made: Callable[..., Plan]) -> None:
    decisions = {item.field: item for item in made(*_LARGE).decisions}
    assert "Radford" in str(decisions["data.seq_len"].source)
    assert "Brown" in str(decisions["batch.tokens"].source)


@pytest.mark.parametrize(
    ("sets", "named"),
    [
        ((*_LARGE,), []),
        ((*_LARGE, "data.seq_len=128"), ["data.seq_len is 128"]),
        ((*_LARGE, "data.seq_len=256", "batch.tokens=8192"), ["batch.tokens is 8,192"]),
        ((*_LARGE, "batch.tokens=4M"), ["batch.tokens is 4,000,000"]),
        (("data.seq_len=64",), []),
    ],
)
def test_a_value_far_from_the_usual_one_is_a_warning(
    made: Callable[..., Plan], sets: tuple[str, ...], named: list[str]
) -> None:
    warnings = [text for text in made(*sets).warnings if "are usual" in text]
    assert [text.partition(";")[0] for text in warnings] == named


def values_of(plan: Plan, *fields: str) -> list[object]:
    decided = {item.field: item for item in plan.decisions}
    assert all(decided[field].source for field in fields), fields
    return [decided[field].value for field in fields]


_SEVEN = (*_GPUS, "model={preset: llama-7b}")


@pytest.mark.parametrize(
    ("model", "rate"),
    [
        ("gpt2-350m", 3e-4),
        ("pythia-1.4b", 2e-4),
        ("llama-7b", 3e-4),
        ("llama-2-13b", 3e-4),
        ("qwen3-30b-a3b", 4e-4),  # of which a token passes 3B
    ],
)
def test_pretraining_takes_the_published_rate_of_its_size(
    made: Callable[..., Plan], model: str, rate: float
) -> None:
    sets = ("framework=hf", "compute.gpu=b200", "compute.gpus=8")
    planned = made(*sets, f"model={{preset: {model}}}", "steps=null", "tokens=100B")
    assert values_of(planned, "optimizer.lr") == [pytest.approx(rate, rel=0.08)]
    reason = next(item.reason for item in planned.decisions if item.field == "optimizer.lr")
    assert "the laws of DeepSeek LLM" in reason


def test_pretraining_of_7b_is_decided_whole_with_its_sources(made: Callable[..., Plan]) -> None:
    planned = made(*_SEVEN, "steps=null", "tokens=100B")
    fields = ("weight_decay", "betas", "grad_clip")
    assert values_of(planned, *(f"optimizer.{name}" for name in fields)) == [0.1, [0.9, 0.95], 1.0]
    assert values_of(planned, "schedule.kind", "schedule.min_lr_ratio") == ["cosine", 0.1]
    every, batches = values_of(planned, "eval.every_steps", "eval.batches")
    tokens = planned.config["batch"]["tokens"]
    assert isinstance(every, int) and isinstance(batches, int)
    assert 50 * tokens <= every * tokens <= 1_000_000_000
    assert batches * planned.config["batch"]["micro_batch"] * 2048 == 1 << 20
    assert planned.config["eval"]["every_steps"] == every


@pytest.mark.parametrize(
    ("change", "warned"),
    [
        ("optimizer.lr=0.01", "optimizer.lr is 0.01; for a model of 6,738,415,616 parameters"),
        ("optimizer.lr=1e-5", "optimizer.lr is 1e-05; for a model of 6,738,415,616 parameters"),
        ("batch.tokens=8192", "batch.tokens is 8,192; with 6,738M parameters 4,194,304 are usual"),
        ("optimizer.betas=[0.9, 0.999]", "optimizer.betas is 0.9 and 0.999"),
        ("optimizer.weight_decay=0", "optimizer.weight_decay is 0;"),
        ("optimizer.grad_clip=0", "optimizer.grad_clip is 0;"),
        ("schedule.kind=constant", "schedule.kind is constant;"),
        ("schedule.warmup_steps=0", "schedule.warmup_steps is 0;"),
        ("schedule.warmup_steps=12000", "schedule.warmup_steps is 12,000;"),
    ],
)
def test_what_departs_from_published_pretraining_is_a_warning_with_its_reason(
    made: Callable[..., Plan], change: str, warned: str
) -> None:
    before = made(*_SEVEN, "steps=null", "tokens=100B").warnings
    after = made(*_SEVEN, "steps=null", "tokens=100B", change).warnings
    new = [text for text in after if text not in before]
    assert any(text.startswith(warned) for text in new), new


@pytest.mark.parametrize(
    "change",
    [
        "optimizer.lr=1.2e-4",
        "optimizer.lr=4.2e-4",
        "optimizer.lr=9e-4",
        "batch.tokens=2M",
        "batch.tokens=9M",
        "optimizer.betas=[0.9, 0.98]",
        "schedule.kind=wsd",
        "schedule.min_lr_ratio=0",
        "schedule.warmup_steps=2000",
        "optimizer.weight_decay=0.05",
    ],
)
def test_what_was_published_for_some_7b_is_no_departure(
    made: Callable[..., Plan], change: str
) -> None:
    before = made(*_SEVEN, "steps=null", "tokens=100B").warnings
    assert made(*_SEVEN, "steps=null", "tokens=100B", change).warnings == before


_LLAMA_8B = ModelFacts(
    path="/weights",
    model_type="llama",
    is_decoder=True,
    tied=False,
    has_tokenizer=True,
    chat_template=True,
    n_layer=32,
    n_head=32,
    n_kv_head=8,
    d_model=4096,
    d_ff=14336,
    vocab_size=128256,
    parameters=8_030_261_248,
    max_positions=131072,
)


@pytest.fixture
def tuned(cpu_host: HostFacts, one_source: Callable[..., CorpusFacts]) -> Callable[..., Plan]:
    host = cpu_host.model_copy(update={"memory_available_gib": 900.0, "disk_free_gib": 1e6})

    def make(*sets: str, model: ModelFacts = _LLAMA_8B, examples: int = 50_000) -> Plan:
        spec = load_spec(
            "{name: a, framework: trl, model: {path: /weights}, method_args: {epochs: auto}, "
            "data: {sources: [{name: main, path: /c, format: jsonl}]}, "
            "compute: {gpu: h100, gpus: 8}}\n",
            sets,
        )
        return plan(spec, host, one_source(examples=examples), None, model)

    return make


_LORA = "adapter={r: 16}"


@pytest.mark.parametrize(
    ("sets", "rate", "sequences", "share", "epochs"),
    [
        (("method=sft",), 2e-5, 128, 0.03, 2),
        (("method=sft", _LORA), 2e-4, 16, 0.03, 2),
        (("method=dpo",), 5e-7, 128, 0.1, 1),
        (("method=dpo", _LORA), 5e-6, 128, 0.1, 1),
        (("method=kto",), 5e-7, 32, 0.1, 1),
        (("method=reward",), 1e-5, 64, 0.03, 1),
    ],
)
def test_tuning_takes_what_its_recipe_took(
    tuned: Callable[..., Plan],
    sets: tuple[str, ...],
    rate: float,
    sequences: int,
    share: float,
    epochs: int,
) -> None:
    planned = tuned(*sets)
    lr, length, tokens, decay, betas, passes = values_of(
        planned,
        "optimizer.lr",
        "data.seq_len",
        "batch.tokens",
        "optimizer.weight_decay",
        "optimizer.betas",
        "method_args.epochs",
    )
    assert (lr, length, decay, betas, passes) == (rate, 2048, 0.0, [0.9, 0.999], epochs)
    assert tokens == sequences * 2048
    schedule = planned.config["schedule"]
    assert (schedule["kind"], schedule["min_lr_ratio"]) == ("linear", 0.0)
    assert schedule["warmup_steps"] == round(share * planned.config["steps"])
    assert planned.warnings == tuned(*sets).warnings
    assert not [text for text in planned.warnings if "is usual" in text]


def test_the_tuning_of_experts_goes_by_what_a_token_passes(tuned: Callable[..., Plan]) -> None:
    named = find_model("mixtral-8x7b")
    assert named is not None
    weights = facts_of(named).model_copy(update={"path": "/weights", "chat_template": True})
    decisions = {
        item.field: item for item in tuned(_LORA, "compute.gpu=b200", model=weights).decisions
    }
    rate, decay = decisions["optimizer.lr"], decisions["optimizer.weight_decay"]
    # 46.7B parameters would take 1e-4, as a dense model of 30B and more.
    assert rate.value == 2e-4
    assert "of a model with 12,879,925,248 active parameters" in rate.reason
    assert decay.reason == "Usual in tuning with 12,880M active parameters."
    dense = {item.field: item.reason for item in tuned(_LORA).decisions}
    assert "of a model with 8,030,261,248 parameters" in dense["optimizer.lr"]


def test_tuning_goes_by_the_bases_positions_and_by_how_many_examples_there_are(
    tuned: Callable[..., Plan],
) -> None:
    short = _LLAMA_8B.model_copy(update={"max_positions": 1024})
    assert tuned(model=short).config["data"]["seq_len"] == 1024
    assert tuned(examples=3000).config["derived"]["sequences_per_step"] == 32


@pytest.mark.parametrize(
    ("sets", "warned"),
    [
        (("optimizer.lr=1e-3",), "optimizer.lr is 0.001; for sft auto takes 2e-05"),
        (("optimizer.lr=1e-7",), "optimizer.lr is 1e-07; for sft auto takes 2e-05"),
        (("method=dpo", "method_args.beta=2"), "method_args.beta is 2;"),
        (("method=dpo", "method_args.epochs=8"), "method_args.epochs is 8;"),
        (("optimizer.weight_decay=0.5",), "optimizer.weight_decay is 0.5;"),
        (("batch.tokens=10M",), "batch.tokens is 4,882 sequences;"),
    ],
)
def test_what_departs_from_published_tuning_is_a_warning(
    tuned: Callable[..., Plan], sets: tuple[str, ...], warned: str
) -> None:
    assert [text for text in tuned(*sets).warnings if text.startswith(warned)]


def test_small_models_keep_the_values_of_a_first_training(tuned: Callable[..., Plan]) -> None:
    tiny = _LLAMA_8B.model_copy(update={"parameters": 49_000_000})
    config = tuned(model=tiny).config
    assert (config["data"]["seq_len"], config["batch"]["tokens"]) == (128, 8192)
    assert config["optimizer"]["weight_decay"] == 0.1
    assert config["optimizer"]["betas"] == [0.9, 0.95]
    assert (config["schedule"]["kind"], config["eval"]["every_steps"]) == ("cosine", 50)


@pytest.mark.parametrize(
    ("method", "parameters", "examples", "passes"),
    [
        ("sft", 8_000_000_000, 50_000, 2),  # of which 47,500 train
        ("sft", 49_000_000, 50_000, 1),
        ("dpo", 8_000_000_000, 50_000, 1),
        ("dpo", 8_000_000_000, 10_200, 2),  # of which 9,690 train
        ("sft", 8_000_000_000, 1_050, 3),
    ],
)
def test_passes_are_as_the_reference_of_the_spec_says(
    tuned: Callable[..., Plan], method: str, parameters: int, examples: int, passes: int
) -> None:
    model = _LLAMA_8B.model_copy(update={"parameters": parameters})
    decisions = tuned(f"method={method}", model=model, examples=examples).decisions
    assert [item.value for item in decisions if item.field == "method_args.epochs"] == [passes]
    rule = (
        "3 below 1,000 examples, 2 below 10,000, else 1; sft of a model of 50M parameters or more"
    )
    assert EPOCHS.text.endswith(f"{rule} 2.")


@pytest.mark.parametrize(
    ("target", "tokens", "warned"),
    [
        ("val_loss < 1.5", 32_000, True),
        ("val_loss < 2.1", 32_000, False),
        ("loss > 9", 32_000, False),
        ("val_loss < 1.5", None, False),  # of bytes, which the fit says nothing of
    ],
)
def test_a_loss_that_size_and_data_do_not_allow_is_a_warning(
    made: Callable[..., Plan], target: str, tokens: int | None, warned: bool
) -> None:
    alert = f"alerts=[{{name: goal, severity: info, when: '{target}', to: me}}]"
    read_by = None if tokens is None else TokenizerFacts(vocab_size=tokens, digest="none")
    sets = (*_SEVEN, "steps=null", "tokens=100B", alert)
    warnings = made(*sets, tokenizer=read_by).warnings
    said = [text for text in warnings if text.startswith("alerts[0].when waits for a loss")]
    assert bool(said) == warned
    assert all("reach about 2.22 (Hoffmann" in text for text in said)
