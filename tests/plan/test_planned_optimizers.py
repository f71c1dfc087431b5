"""What planning makes of each optimizer: its rate, memory, packages, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainer_runtime.core.config.optimizers import OPTIMIZERS
from trainer_runtime.core.diagnosis.remedies.ladder import patches
from trainmaster.errors.errors import TrainmasterError
from trainmaster.plan import CorpusFacts, HostFacts, Plan, plan
from trainmaster.plan.spec import TrainingSpec

SpecMaker = Callable[..., TrainingSpec]
ADAPTIVE = ("optimizer.clip=agc", "optimizer.grad_clip=0.01")
SCALED = "steps of 524,288 tokens"


@pytest.fixture
def planned(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> Callable[..., Plan]:
    return lambda *changes: plan(make_spec(*changes), cpu_host, text_corpus)


def problem(make: Callable[..., Any], *changes: str) -> TrainmasterError:
    with pytest.raises(TrainmasterError) as caught:
        make(*changes)
    return caught.value


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_auto_takes_the_published_multiple_of_adamws_rate(
    name: str, planned: Callable[..., Plan]
) -> None:
    record, adamw = OPTIMIZERS[name], planned().config["optimizer"]["lr"]
    if record.rate is None:
        refused = problem(planned, f"optimizer.name={name}")
        assert (refused.code, refused.field) == ("INVALID_VALUE", "optimizer.lr")
        return
    made = planned(f"optimizer.name={name}")
    decision = next(of for of in made.decisions if of.field == "optimizer.lr")
    assert made.config["optimizer"]["lr"] == pytest.approx(record.rate * adamw, rel=0.05)
    assert record.rate_source in (decision.source or "")


def test_open_values_are_the_optimizers_usual_ones(planned: Callable[..., Plan]) -> None:
    muon = planned("optimizer.name=muon").config["optimizer"]
    assert (muon["momentum"], muon["betas"], muon["decay"]) == (0.95, [0.9, 0.95], "decoupled")
    sgd = planned("optimizer.name=sgd", "optimizer.lr=0.1").config["optimizer"]
    assert (sgd["momentum"], sgd["betas"], sgd["decay"]) == (0.9, None, "l2")
    lion = planned("optimizer.name=lion", "optimizer.betas=[0.8, 0.9]").config["optimizer"]
    assert (lion["betas"], lion["eps"]) == ([0.8, 0.9], None)


def test_the_plan_describes_what_the_rate_would_be_for_the_batch(
    planned: Callable[..., Plan],
) -> None:
    def reason(*changes: str) -> str:
        made = planned(*changes)
        return next(of.reason for of in made.decisions if of.field == "optimizer.lr")

    assert f"{SCALED}. For 8,192 it would be 0.00016 by the square root" in reason()
    assert "2e-05 linearly (Goyal et al. 2017); neither is applied" in reason()
    assert SCALED not in reason("batch.tokens=524288")


def test_memory_and_disk_count_the_optimizers_state(planned: Callable[..., Plan]) -> None:
    def sizes(name: str) -> tuple[float, float]:
        changes = ("model.preset=gpt2-124m", "model.n_layer=null", "model.n_head=null")
        changes += ("model.d_model=null", "optimizer.lr=0.001", "batch.micro_batch=1")
        made = planned(*changes, f"optimizer.name={name}").estimates
        assert made.memory_gib is not None
        assert made.disk_gib is not None
        return made.memory_gib, made.disk_gib

    memory = {name: sizes(name)[0] for name in OPTIMIZERS}
    assert memory["adamw"] == memory["adam"] == memory["lamb"] == memory["schedule_free"]
    assert memory["adafactor"] < memory["adamw8bit"] < memory["lion"] < memory["muon"]
    assert memory["muon"] < memory["adamw"]
    # GPT-2's 124 million parameters, in fp32: 4 bytes less for each.
    assert memory["adamw"] - memory["lion"] == pytest.approx(124e6 * 4 / 2**30, rel=0.1)
    assert sizes("schedule_free")[1] > sizes("adamw")[1] > sizes("muon")[1]


def test_packages_are_installed_only_where_an_optimizer_comes_from_them(
    planned: Callable[..., Plan],
) -> None:
    assert len(planned("optimizer.name=muon").requirements) == 1
    assert "pytorch-optimizer==4.1.0" in planned("optimizer.name=lion").requirements
    assert planned("optimizer.name=adamw8bit").requirements[-1].startswith("bitsandbytes")


def test_schedule_free_gets_no_decay_of_its_rate(planned: Callable[..., Plan]) -> None:
    made = planned("optimizer.name=schedule_free")
    assert made.config["schedule"]["kind"] == "constant"
    assert any(of.field == "schedule.kind" for of in made.decisions)
    chosen = planned("optimizer.name=schedule_free", "schedule.kind=cosine")
    assert chosen.config["schedule"]["kind"] == "cosine"
    assert any("schedule.kind is cosine" in warning for warning in chosen.warnings)


@pytest.mark.parametrize(
    ("changes", "code", "field", "remedy"),
    [
        (["optimizer.name=sophia"], "NOT_YET_SUPPORTED", "optimizer.name", "adamw8bit"),
        (
            ["framework=hf", "optimizer.name=muon", "compute.strategy=zero2"],
            "INVALID_VALUE",
            "optimizer.name",
            "Set it to one of adamw, adam, sgd, lion; or set compute.strategy to ddp",
        ),
        (
            ["framework=hf", *ADAPTIVE, "compute.strategy=zero3"],
            "INVALID_VALUE",
            "optimizer.clip",
            "norm or value",
        ),
        (["optimizer.clip=agc"], "MISSING_FIELD", "optimizer.grad_clip", "0.01"),
        (
            ["optimizer.name=sgd", "optimizer.lr=0.1", "optimizer.eps=1e-8"],
            "INVALID_VALUE",
            "optimizer.eps",
            "adamw, adam, adafactor, muon",
        ),
        (["optimizer.momentum=0.9"], "INVALID_VALUE", "optimizer.momentum", "sgd, muon, sm3"),
        (["optimizer.groups=[{lr_scale: 2}]"], "MISSING_FIELD", "optimizer.groups[0].match", ""),
    ],
)
def test_what_an_optimizer_cant_do_is_refused_with_what_would_do(
    changes: list[str], code: str, field: str, remedy: str, planned: Callable[..., Plan]
) -> None:
    refused = problem(planned, *changes)
    assert (refused.code, refused.field) == (code, field)
    assert remedy in f"{refused.message} {refused.fix}"


def test_a_remedy_for_memory_parts_nothing_that_the_optimizer_needs_whole(
    planned: Callable[..., Plan],
) -> None:
    def rungs(name: str) -> list[str]:
        made = planned("framework=hf", f"optimizer.name={name}").config
        compute = {**made["compute"], "device": "cuda", "strategy": "ddp", "processes": 4}
        return [patch.id for patch in patches("cuda_oom", {**made, "compute": compute})]

    assert "next_zero_stage" in rungs("lion")
    assert "next_zero_stage" not in rungs("muon")
