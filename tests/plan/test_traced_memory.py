"""A plan by the trace of a step: what it takes from it, and what stays the formulas'."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.plan.imagined_plan import imagined_plan

from trainer_runtime.core.answers.traced import MemoryTrace
from trainmaster.errors.errors import PlanError
from trainmaster.plan import Plan

_GPT2 = "framework: nanogpt\nmodel: {preset: gpt2}\ntokens: 1B\n"
_GIB = 1 << 30


def trace_of(made: Plan, peak_gib: float) -> MemoryTrace:
    """A trace of a plan that has found half a GiB of parameters in fp32."""
    state = {"parameters": _GIB // 2, "gradients": _GIB // 2, "optimizer": _GIB, "other": 0}
    compute = made.config["compute"]
    return MemoryTrace(
        micro_batch=made.config["batch"]["micro_batch"],
        strategy=compute["strategy"],
        recompute=compute.get("activation_checkpointing", False),
        peak_bytes=round(peak_gib * _GIB),
        passing_bytes=round((peak_gib - 1.75) * _GIB),
        state=state,
        at_peak={**state, "activations": round((peak_gib - 2) * _GIB), "temporaries": 0},
    )


def test_the_estimate_is_the_traced_peak_with_context_and_fragments() -> None:
    made = imagined_plan(_GPT2)
    assert made.estimates.memory_source is None
    again = imagined_plan(_GPT2, trace=trace_of(made, 40.0))
    assert again.config == made.config
    assert again.estimates.memory_source == "trace"
    assert again.estimates.memory_gib == pytest.approx(40.0 * 1.03 + 0.6, abs=0.01)
    decision = next(item for item in again.decisions if item.field == "memory_gib")
    assert decision.source == "trace" and "state 2 GiB; beside it 38 GiB" in decision.reason


def test_ddp_adds_its_buckets_to_the_traced_state() -> None:
    spec = _GPT2.replace("nanogpt", "hf")
    made = imagined_plan(spec, "a100:4")
    again = imagined_plan(spec, "a100:4", trace=trace_of(made, 40.0))
    assert again.estimates.memory_gib == pytest.approx(40.5 * 1.03 + 0.6, abs=0.01)


def test_state_that_is_divided_stays_the_formulas() -> None:
    spec = "framework: hf\nmodel: {preset: llama-7b}\ntokens: 1B\n"
    made = imagined_plan(spec, "a100:8")
    trace = trace_of(made, 12.0)
    again = imagined_plan(spec, "a100:8", trace=trace)
    # 6 bytes a parameter are of each process, 12 are divided by 8.
    state_gib = 6_738_415_616 * (6 + 12 / 8) / _GIB
    assert again.estimates.memory_gib == pytest.approx((state_gib + 10.25) * 1.03 + 0.6, abs=0.01)
    decision = next(item for item in again.decisions if item.field == "memory_gib")
    assert "which zero2 divides as the formulas have it" in decision.reason


def test_what_was_traced_is_no_bound_of_what_fits() -> None:
    made = imagined_plan(_GPT2)
    again = imagined_plan(_GPT2, trace=trace_of(made, 40.0))
    decision = next(item for item in again.decisions if item.field == "batch.micro_batch")
    traced = made.config["batch"]["micro_batch"]
    assert f"The trace was of {traced} sequences, which fit" in decision.reason


def test_fewer_at_a_time_are_planned_where_the_traced_step_does_not_fit() -> None:
    made = imagined_plan(_GPT2)
    before = made.config["batch"]["micro_batch"]
    again = imagined_plan(_GPT2, trace=trace_of(made, 100.0))
    assert again.config["batch"]["micro_batch"] < before
    assert again.estimates.memory_source is None, "the step that is planned now was not traced"


def test_a_stated_micro_batch_that_does_not_fit_by_the_trace_is_refused() -> None:
    spec = f"{_GPT2}batch: {{micro_batch: 32}}\n"
    made = imagined_plan(spec)
    with pytest.raises(PlanError) as refused:
        imagined_plan(spec, trace=trace_of(made, 120.0))
    assert refused.value.code == "DOES_NOT_FIT" and refused.value.field == "batch.micro_batch"


def test_the_trace_of_another_way_to_share_changes_nothing() -> None:
    made = imagined_plan(_GPT2)
    trace = replace(trace_of(made, 40.0), strategy="ddp")
    assert imagined_plan(_GPT2, trace=trace).estimates == made.estimates
