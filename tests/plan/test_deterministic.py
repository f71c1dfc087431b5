from __future__ import annotations

import pytest
from support.plan.small_plans import SpecMaker

from trainmaster.plan import CorpusFacts, GpuFacts, HostFacts, Plan, plan


@pytest.fixture
def gpu_host(cpu_host: HostFacts) -> HostFacts:
    gpu = GpuFacts(
        index=0, name="NVIDIA H100", memory_gib=79.1, memory_free_gib=79.0, driver="580.65.06"
    )
    return cpu_host.model_copy(update={"gpus": (gpu,), "torch": None})


def chosen(planned: Plan) -> tuple[bool, str | None]:
    """What the configuration asks for, and the reason that the plan shows."""
    reasons = {decision.field: decision.reason for decision in planned.decisions}
    return planned.config["compute"]["deterministic"], reasons.get("compute.deterministic")


def test_on_a_gpu_nanogpts_script_repeats_its_losses_by_itself(
    make_spec: SpecMaker, gpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    assert chosen(plan(make_spec(), gpu_host, text_corpus)) == (
        True,
        "A resumed run repeats an uninterrupted one's losses to the last bit.",
    )


def test_a_framework_on_a_gpu_says_that_its_last_bits_can_differ(
    make_spec: SpecMaker, gpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    value, reason = chosen(plan(make_spec("framework=hf"), gpu_host, text_corpus))
    assert not value
    assert reason is not None
    assert "can differ in their last bits" in reason


def test_on_a_cpu_nothing_has_to_be_decided(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    assert chosen(plan(make_spec(), cpu_host, text_corpus)) == (False, None)


@pytest.mark.parametrize(
    ("framework", "asked"), [("nanogpt", "false"), ("hf", "true"), ("litgpt", "true")]
)
def test_what_the_spec_asks_for_is_planned(
    make_spec: SpecMaker,
    gpu_host: HostFacts,
    text_corpus: CorpusFacts,
    framework: str,
    asked: str,
) -> None:
    spec = make_spec(f"framework={framework}", f"compute.deterministic={asked}")
    assert chosen(plan(spec, gpu_host, text_corpus)) == (asked == "true", None)
