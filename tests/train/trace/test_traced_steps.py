"""The memory of a script's own steps, traced on a CPU without data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.plan.imagined_plan import written_plan
from support.session.tiers import by_engines

from trainer_runtime.core.answers.traced import MemoryTrace
from trainer_runtime.core.config import RunConfig
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.trace import nanogpt
from trainer_runtime.train.trace.traced import traced
from trainmaster.plan import Plan

pytestmark = pytest.mark.slow
_SIZES = "n_layer: 2, n_head: 2, d_model: 64, vocab_size: 512"
_ADAMW = "optimizer: {name: adamw}\n"
_GPT2 = f"framework: nanogpt\nmodel: {{style: gpt2, {_SIZES}}}\n{_ADAMW}"
_MODERN = f"framework: nanogpt\nmodel: {{style: modern, {_SIZES}}}\noptimizer: {{name: muon}}\n"
_LLAMA = f"framework: hf\nmodel: {{style: llama, {_SIZES}}}\n{_ADAMW}"
_LITGPT = f"framework: litgpt\nmodel: {{style: llama, {_SIZES}}}\n{_ADAMW}"
# Of the blocks of _MODERN: attention's four matrices and the feed-forward's two of four widths.
_MATRICES = 2 * 12 * 64 * 64
# AdamW has a step's number in fp32 of each tensor.
_NUMBERS = 4 * 40


def trace(folder: Path, spec: str, *sets: str, on: str = "a100:1") -> tuple[Plan, MemoryTrace]:
    usual = ("data.seq_len=64", "batch.tokens=65536", "tokens=6553600")
    made = written_plan(folder, spec, on, *usual, *sets)
    return made, traced(folder)


@pytest.mark.parametrize(
    ("spec", "with_one_moment"),
    [(_GPT2, 0), (_MODERN, _MATRICES), *by_engines((_LLAMA, 0), (_LITGPT, 0))],
    ids=("gpt2", "modern", "hf", "litgpt"),
)
def test_the_state_is_the_exact_count(tmp_path: Path, spec: str, with_one_moment: int) -> None:
    made, of = trace(tmp_path, spec, "batch.micro_batch=16")
    count = made.estimates.parameters
    assert count is not None
    assert of.state["parameters"] == of.state["gradients"] == 4 * count
    moments = 8 * count - 4 * with_one_moment
    assert moments <= of.state["optimizer"] <= moments + _NUMBERS
    assert of.at_peak["parameters"] == 4 * count and sum(of.at_peak.values()) == of.peak_bytes


def test_what_is_beside_the_state_grows_with_the_micro_batch(tmp_path: Path) -> None:
    passing = [
        trace(tmp_path, _GPT2, f"batch.micro_batch={size}")[1].beside_state_bytes
        for size in (16, 32, 64)
    ]
    assert passing[2] - passing[1] == pytest.approx(2 * (passing[1] - passing[0]), rel=0.01)
    assert passing[0] > 0


@pytest.mark.engine
def test_recomputed_activations_take_less(tmp_path: Path) -> None:
    sizes = ("model.n_layer=8", "batch.micro_batch=64")
    kept, recomputed = (
        trace(tmp_path, _LLAMA, *sizes, f"compute.activation_checkpointing={value}")[1]
        for value in ("false", "true")
    )
    assert recomputed.recompute and recomputed.beside_state_bytes < 0.7 * kept.beside_state_bytes
    assert recomputed.state == kept.state


def test_averaged_weights_are_counted(tmp_path: Path) -> None:
    made, of = trace(tmp_path, _GPT2, "batch.micro_batch=16", "checkpoint.ema=0.99")
    assert of.state["other"] == 4 * (made.estimates.parameters or 0)


def test_attention_on_a_gpu_keeps_no_scores(tmp_path: Path) -> None:
    """Twice as long sequences, half as many of them: the same memory."""
    short, long = (
        trace(tmp_path, _GPT2, f"data.seq_len={length}", f"batch.micro_batch={4096 // length}")[1]
        for length in (128, 256)
    )
    assert long.beside_state_bytes == pytest.approx(short.beside_state_bytes, rel=0.01)


def test_what_only_a_gpu_computes_is_refused_with_the_reason(tmp_path: Path) -> None:
    trace(tmp_path, _GPT2)
    config = json.loads((tmp_path / "config.json").read_text())
    config["compute"]["fp8_lm_head"] = True
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="fp8_lm_head computes by kernels that GPUs alone have"):
        traced(tmp_path)


def test_tensors_with_data_take_the_same(tmp_path: Path) -> None:
    trace(tmp_path, _GPT2, "batch.micro_batch=16")
    document = json.loads((tmp_path / "config.json").read_text())
    document["compute"] |= {"device": "cpu", "compile": False}
    (tmp_path / "config.json").write_text(json.dumps(document))
    with_data = nanogpt.trace(RunConfig.parse(document), tmp_path)
    assert with_data == traced(tmp_path)
