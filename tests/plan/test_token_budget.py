"""`tokens: auto`: twenty a parameter, bounded by the data and by the limits of the run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.plan.imagined_plan import imagined_plan

from trainmaster.errors.errors import PlanError
from trainmaster.plan import CorpusFacts, Decision, HostFacts, plan
from trainmaster.plan.spec import TrainingSpec

_AUTO = ("steps=null", "tokens=auto", "framework=hf", "model={preset: gpt2-124m}")
_PARAMETERS = 124_439_808


@pytest.fixture
def decided(
    make_spec: Callable[..., TrainingSpec],
    gpu_host: HostFacts,
    one_source: Callable[..., CorpusFacts],
) -> Callable[..., Decision]:
    def decide(*sets: str, tokens: int = 10**10, **facts: object) -> Decision:
        corpus = one_source(size_bytes=tokens, tokens=tokens)
        made = plan(make_spec(*_AUTO, *sets), gpu_host.model_copy(update=facts), corpus)
        (decision,) = [item for item in made.decisions if item.field == "tokens"]
        return decision

    return decide


def test_new_weights_get_twenty_tokens_a_parameter(decided: Callable[..., Decision]) -> None:
    decision = decided()
    assert decision.value == 20 * _PARAMETERS
    assert "Hoffmann" in str(decision.source)


def test_experts_count_by_what_a_token_passes() -> None:
    made = imagined_plan("framework: hf\nmodel: {preset: qwen3-30b-a3b}\ntokens: auto\n", "h100:64")
    (decision,) = [item for item in made.decisions if item.field == "tokens"]
    assert "20 for each of 3," in decision.reason and "active parameters" in decision.reason
    assert "Krajewski" in decision.reason


def test_steps_too_few_to_learn_in_are_warned_of() -> None:
    spec = "framework: hf\nmodel: {preset: llama-7b}\ntokens: auto\nlimits: {max_runtime: 1h}\n"
    warnings = imagined_plan(spec, "h100:8").warnings
    assert any(
        "44 steps of 4,194,304 tokens" in text and "about 184320," in text for text in warnings
    )
    enough = imagined_plan(f"{spec}batch: {{tokens: 131072}}\n", "h100:8").warnings
    assert not any("at least. Set batch.tokens" in text for text in enough)


def test_a_corpus_is_read_at_most_four_times(decided: Callable[..., Decision]) -> None:
    decision = decided(tokens=10**8)
    assert decision.value == 4 * 95 * 10**6
    assert "Muennighoff" in str(decision.source)
    assert "Best would be" in decision.reason


def test_the_budget_and_the_time_end_it(decided: Callable[..., Decision]) -> None:
    paid = decided("limits.budget_usd=2", usd_per_hour=2.0)
    timed = decided("limits.max_runtime=1h")
    assert paid.value == timed.value < 20 * _PARAMETERS
    assert "$2.00 buy" in paid.reason
    assert "limits.max_runtime 1h" in timed.reason


def test_a_budget_of_less_than_a_step_is_refused(decided: Callable[..., Decision]) -> None:
    with pytest.raises(PlanError) as caught:
        decided("limits.budget_usd=0.000001", usd_per_hour=2.0)
    assert (caught.value.code, caught.value.field) == ("INVALID_VALUE", "tokens")
    assert "but what $" in caught.value.message


def test_the_budget_lasts_at_the_lowest_speed_of_the_planned_range() -> None:
    spec = "framework: hf\nmodel: {preset: llama-3.2-1b}\ntokens: auto\nlimits: {budget_usd: 50}\n"
    made = imagined_plan(spec, "h100:8")
    assert made.config["compute"]["compile"] is True
    tokens = next(item.value for item in made.decisions if item.field == "tokens")
    dollars = made.estimates.ranges["usd"]
    assert isinstance(tokens, int) and tokens > 10**9
    assert dollars[1] == pytest.approx(50, rel=0.01), "the most that it may cost"


def test_steps_too_few_to_compile_are_counted_uncompiled() -> None:
    spec = "framework: hf\nmodel: {preset: llama-3.2-1b}\ntokens: auto\nlimits: {budget_usd: 5}\n"
    made = imagined_plan(f"{spec}batch: {{tokens: 1048576}}\n", "h100:8")
    assert made.config["compute"]["compile"] is False
    assert made.estimates.ranges["usd"][1] == pytest.approx(5, rel=0.01)
