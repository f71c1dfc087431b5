"""What tuning holds beside its weights: scores of tokens, a reference, gathered experts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.plan.framework_plans import BILLION, planned, refusal

from trainer_runtime.core.environment.gpus import find_gpu
from trainmaster.plan import CorpusFacts, HostFacts
from trainmaster.plan.architecture import Architecture, Experts, Layer, parameters
from trainmaster.plan.decisions.memory import GIB, Load, Sharing, memory
from trainmaster.plan.decisions.throughput import Step, modelled_mfu
from trainmaster.plan.frameworks import FRAMEWORKS

_LARGE = Architecture("llama", 32, 32, 8, 4096, 14336, 128_256, 8192, tied=False)
_EXPERTS = Architecture(
    "llama", 32, 32, 8, 4096, 2 * 14336, 32000, 2048, experts=Experts(8, 2, 14336, 32)
)
_ADAPTER = "adapter={r: 16}"


def gib(load: Load, sharing: Sharing | None = None, micro_batch: int = 1) -> float:
    return memory(load, micro_batch, "bf16", "cuda", sharing).total_gib


def test_scores_by_tiles_take_no_more_for_a_larger_vocabulary() -> None:
    def beside(vocab_size: int, *, tiled: bool) -> float:
        model = replace(_LARGE, vocab_size=vocab_size)
        return memory(Load(model, 0, tiled=tiled), 1, "bf16", "cuda").logits_gib

    assert beside(128_256, tiled=True) == beside(32_000, tiled=True)
    # A tile of 4,096 tokens by 32,768 columns, and 8,192 tokens of 4,096 features.
    assert beside(128_256, tiled=True) * GIB == 4096 * 32768 * 2 + 8192 * 4096 * 6
    assert beside(128_256, tiled=False) * GIB == 8192 * 128_256 * 12


@pytest.mark.parametrize("method", ["sft", "dpo", "kto"])
def test_what_scores_by_tiles_is_planned_without_logits(
    method: str, gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    def taken(vocab_size: int, *sets: str) -> float:
        model = BILLION.model_copy(update={"vocab_size": vocab_size})
        sets = (f"method={method}", "batch.micro_batch=2", _ADAPTER, *sets)
        estimate = planned("trl", gpu_host, rows, *sets, model=model).estimates.memory_gib
        assert estimate is not None
        return estimate

    assert taken(256_000) == taken(32_000)
    if method == "sft":
        smoothed = ("optimizer.label_smoothing=0.1", "batch.micro_batch=1")
        assert taken(256_000, *smoothed) > taken(32_000, *smoothed) + 4


@pytest.mark.engine
def test_methods_that_are_planned_by_tiles_score_by_such_tiles() -> None:
    import inspect

    import trl
    from trl.kernels.chunked_logprob import TOKEN_CHUNK_SIZE
    from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE

    trainers: dict[str, Any] = {
        "sft": trl.SFTTrainer,
        "dpo": trl.DPOTrainer,
        "kto": trl.KTOTrainer,
        "grpo": trl.GRPOTrainer,
    }
    assert trainers.keys() == FRAMEWORKS["trl"].tiled_methods
    assert (TOKEN_CHUNK_SIZE, _CHUNKED_LOGPROB_CHUNK_SIZE) == (4096, 32768)
    assert all("fused_lm_head=True" in inspect.getsource(trainer) for trainer in trainers.values())


def test_a_reference_is_in_half_precision_under_zero_alone() -> None:
    count = 8_030_261_248
    load = Load(_LARGE, count, tiled=True)

    def reference_gib(strategy: str) -> float:
        sharing = Sharing(strategy, 8)
        both = memory(replace(load, reference=count), 1, "bf16", "cuda", sharing)
        return both.state_gib - memory(load, 1, "bf16", "cuda", sharing).state_gib

    assert reference_gib("ddp") == pytest.approx(4 * count / GIB)
    assert reference_gib("zero2") == pytest.approx(2 * count / GIB)
    assert reference_gib("zero3") == pytest.approx(2 * count / GIB / 8)
    assert reference_gib("fsdp") == pytest.approx(4 * count / GIB / 8)


def test_all_experts_of_a_layer_are_gathered_and_sent() -> None:
    dense = replace(_EXPERTS, experts=None)
    idle = _EXPERTS.experts.idle_parameters(4096) if _EXPERTS.experts else 0
    sharing = Sharing("zero3", 8)
    apart = gib(Load(_EXPERTS, 10**9), sharing, 0) - gib(Load(dense, 10**9), sharing, 0)
    assert apart == pytest.approx(1.03 * 2 * idle / 32 * 2 / GIB, rel=0.1)
    gpu = find_gpu("h100")
    assert gpu is not None
    step = Step(sharing, 4096)
    assert modelled_mfu(_EXPERTS, gpu, step) < 0.6 * modelled_mfu(dense, gpu, step)


def test_autocast_copies_weights_that_are_trained_in_fp32() -> None:
    count = parameters(_LARGE)

    def copied(load: Load, sharing: Sharing | None = None, precision: str = "bf16") -> float:
        return memory(load, 1, precision, "cuda", sharing).copies_gib * GIB

    load = Load(_LARGE, count)
    # All but the input's embedding and the norms.
    assert copied(load) == pytest.approx(2 * (count - 128_256 * 4096), rel=1e-3)
    assert copied(load, Sharing("ddp", 8)) == copied(load) > copied(load, Sharing(recompute=True))
    assert copied(load, Sharing("zero2", 8)) == copied(load, precision="fp32") == 0
    assert copied(replace(load, compiled=True)) == copied(Load(_LARGE, 10**7)) == 0


def test_completions_of_a_step_have_to_fit_at_once(gpu_host: HostFacts, rows: CorpusFacts) -> None:
    grpo = ("method=grpo", "method_args.reward_file=/reward.py", "adapter={r: 16}")
    model = BILLION.model_copy(update={"n_kv_head": 32})
    error = refusal("trl", gpu_host, rows, *grpo, "batch.tokens=16777216", model=model)
    assert (error.code, error.field) == ("DOES_NOT_FIT", "batch.tokens")
    most = re.search(r"at most (\d+): all completions of a step are written at once", error.fix)
    assert most is not None
    tokens = int(most[1])
    made = planned("trl", gpu_host, rows, *grpo, f"batch.tokens={tokens}", model=model)
    assert made.estimates.memory_gib is not None
    assert not [text for text in made.warnings if text.startswith("Memory is short")]
    fewer = planned("trl", gpu_host, rows, *grpo, "batch.tokens=16384", model=model)
    assert fewer.estimates.memory_gib < made.estimates.memory_gib


def test_zero3_gathers_the_weights_that_generate() -> None:
    load = Load(_LARGE, 10**7, 16e9, tiled=True)
    generating = replace(load, generated=8)

    def more_gib(strategy: str) -> float:
        sharing = Sharing(strategy, 8)
        of = [memory(one, 0, "bf16", "cuda", sharing) for one in (load, generating)]
        return of[1].activations_gib - of[0].activations_gib

    of_tokens = 8 * 8192 * 2 * 32 * 1024 * 2
    assert more_gib("ddp") * GIB == pytest.approx(of_tokens, rel=0.1)
    gathered = (more_gib("zero3") - more_gib("ddp")) * GIB
    assert gathered == pytest.approx(2 * parameters(_LARGE), rel=0.01)


def test_a_window_saves_no_time() -> None:
    gpu = find_gpu("h100")
    assert gpu is not None
    whole = replace(_LARGE, seq_len=32768)
    windowed = replace(whole, window=1024)
    seconds = [modelled_mfu(model, gpu) for model in (whole, windowed)]
    flops = [2 * 3 * 7.5e9 + 3 * 4 * 32 * 4096 * model.context for model in (whole, windowed)]
    assert seconds[0] / flops[0] == pytest.approx(seconds[1] / flops[1], rel=0.01)


def test_scores_in_parts_take_time() -> None:
    gpu = find_gpu("h100")
    assert gpu is not None
    capped = replace(_LARGE, layer=Layer(capped=True))
    assert 0.6 < modelled_mfu(capped, gpu) / modelled_mfu(_LARGE, gpu) < 0.9


@pytest.fixture
def planned_adapter(gpu_host: HostFacts, rows: CorpusFacts) -> Callable[..., Any]:
    def plan_of(model_type: str, *sets: str) -> Any:
        model = BILLION.model_copy(update={"model_type": model_type, "n_kv_head": 32})
        return planned("trl", gpu_host, rows, *sets, model=model)

    return plan_of


@pytest.mark.parametrize(
    ("model_type", "features"),
    [
        ("llama", 4 * 2 * 2048 + 3 * (2048 + 5632)),
        ("phi3", 4 * 2048 + 2 * 2048 + 2048 + 2 * 5632 + 5632 + 2048),
        ("gpt_neox", 4 * 2048 + 2 * 2048 + 2 * (2048 + 5632)),
        ("starcoder2", 4 * 2 * 2048 + 2 * (2048 + 5632)),
    ],
)
def test_an_adapter_has_the_parameters_of_its_architecture(
    planned_adapter: Callable[..., Any], model_type: str, features: int
) -> None:
    made = planned_adapter(model_type, _ADAPTER)
    assert made.estimates.trained_parameters == 16 * 22 * features


def test_a_target_that_is_not_counted_is_warned_of(planned_adapter: Callable[..., Any]) -> None:
    made = planned_adapter("llama", "adapter={r: 16, targets: [q_proj, kv_b_proj]}")
    assert [text for text in made.warnings if "kv_b_proj, which is not counted" in text]
    assert not [text for text in planned_adapter("llama", _ADAPTER).warnings if "counted" in text]
