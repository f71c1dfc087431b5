from __future__ import annotations

import pytest
from support.plan.small_plans import SpecMaker

from trainmaster.errors.errors import PlanError
from trainmaster.plan import CorpusFacts, GpuFacts, HostFacts, plan

_ASKED = "compute.fp8_lm_head=true"


def host_with(cpu_host: HostFacts, name: str, capability: float | None = None) -> HostFacts:
    gpu = GpuFacts(
        index=0,
        name=name,
        memory_gib=79.1,
        memory_free_gib=79.0,
        driver="580.65.06",
        capability=capability,
    )
    return cpu_host.model_copy(update={"gpus": (gpu,), "torch": None})


@pytest.mark.parametrize(
    ("name", "capability"), [("NVIDIA H100", 9.0), ("NVIDIA L4", None), ("a-newer-one", 12.0)]
)
def test_a_gpu_with_fp8_is_asked_for_it(
    make_spec: SpecMaker,
    cpu_host: HostFacts,
    text_corpus: CorpusFacts,
    name: str,
    capability: float | None,
) -> None:
    planned = plan(make_spec(_ASKED), host_with(cpu_host, name, capability), text_corpus)
    assert planned.config["compute"]["fp8_lm_head"] is True


@pytest.mark.parametrize(
    ("name", "capability", "more"),
    [
        ("NVIDIA A100", 8.0, ()),
        ("an-older-one", 8.6, ()),
        ("NVIDIA H100", 9.0, ("precision=fp16",)),
        ("NVIDIA H100", 9.0, ("compute.gpus=0",)),
        ("NVIDIA H100", 9.0, ("model.d_model=40",)),
    ],
)
def test_what_can_not_compute_in_fp8_is_refused_at_the_plan(
    make_spec: SpecMaker,
    cpu_host: HostFacts,
    text_corpus: CorpusFacts,
    name: str,
    capability: float,
    more: tuple[str, ...],
) -> None:
    with pytest.raises(PlanError, match="fp8_lm_head` is true, but") as refused:
        plan(make_spec(_ASKED, *more), host_with(cpu_host, name, capability), text_corpus)
    assert refused.value.field == "compute.fp8_lm_head"
