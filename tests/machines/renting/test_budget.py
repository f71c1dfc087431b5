"""What money and leases change about a plan, a launch and a run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.machines.offers import offer
from support.machines.rented_instances import HOUR_S, rent
from support.runs.operator import FAST, SLOW, Operator
from support.runs.running_run import run_async, small_spec

from trainer_runtime.core.lease.lease import LEASE, Lease
from trainmaster.errors.errors import HostError, SpendError, TrainmasterError
from trainmaster.machines.host_registry import list_hosts
from trainmaster.machines.renting.token_price import prices_for
from trainmaster.plan import Calibration, CorpusFacts, HostFacts, Plan, Throughput, plan
from trainmaster.plan.spec import TrainingSpec
from trainmaster.runs.planning.plan_run import plan_run
from trainmaster.runs.resume.resume import resume
from trainmaster.runs.status.status import get_status
from trainmaster.sync.run_view import load_view

NOW = 1_700_000_000.0  # when the host of these plans was measured
Plannable = Callable[..., tuple[TrainingSpec, HostFacts, CorpusFacts]]


@pytest.fixture
def priced(plannable: Plannable) -> Callable[..., Plan]:
    """Plans that take some two hours, 1.8 to 2.2, of a host at 4 $/h."""

    def make(*sets: str, **facts: Any) -> Plan:
        spec, host, corpus = plannable(*sets)
        rate = Throughput(device="cpu", precision="bf16", flops_per_s=1e9)
        base = plan(spec, host, corpus, Calibration(measured=(rate,))).estimates.hours
        assert base is not None
        right = rate.model_copy(update={"flops_per_s": 1e9 * base / 2.0})
        priced_facts = {"usd_per_hour": 4.0, "lease_end_t": NOW + 100 * HOUR_S, **facts}
        changed = host.model_copy(update=priced_facts)
        return plan(spec, changed, corpus, Calibration(measured=(right,)))

    return make


def decided(made: Plan, field: str) -> list[Any]:
    return [decision.value for decision in made.decisions if decision.field == field]


def test_a_budget_shortens_the_run_to_what_it_buys(priced: Callable[..., Plan]) -> None:
    made = priced("limits.budget_usd=20")
    assert made.config["limits"] == {"max_runtime_s": 5 * HOUR_S, "budget_usd": 20.0}
    assert decided(made, "limits.max_runtime") == ["5h"]
    assert not [warning for warning in made.warnings if "budget" in warning]
    assert priced("limits.budget_usd=1000").config["limits"]["max_runtime_s"] == 24 * HOUR_S
    shorter = priced("limits.budget_usd=20", "limits.max_runtime=3h")
    assert shorter.config["limits"]["max_runtime_s"] == 3 * HOUR_S


def test_a_training_that_costs_more_than_its_budget_is_refused(
    priced: Callable[..., Plan],
) -> None:
    with pytest.raises(SpendError) as error:
        priced("limits.budget_usd=7")  # 7.2 to 8.8 $ are expected
    assert error.value.code == "SPEND_CAP" and error.value.field == "limits.budget_usd"
    assert "$4.00/h" in error.value.message
    (warning,) = [text for text in priced("limits.budget_usd=8").warnings if "budget" in text]
    assert "stops it at $8.00" in warning


def test_a_budget_without_a_price_has_a_warning(priced: Callable[..., Plan]) -> None:
    made = priced("limits.budget_usd=0.01", usd_per_hour=None)
    assert made.config["limits"]["max_runtime_s"] == 24 * HOUR_S
    assert any("no price on record" in warning for warning in made.warnings)


@pytest.mark.parametrize(
    ("given", "rented", "becomes", "warned"),
    [
        ("null", True, "operator", False),
        ("operator", True, "operator", False),
        ("none", True, None, True),
        ("host:/disk", True, "host:/disk", True),
        ("null", False, None, False),
        ("none", False, None, False),
    ],
)
def test_checkpoints_of_a_rented_instance_are_mirrored_to_the_operator_by_default(
    priced: Callable[..., Plan], given: str, rented: bool, becomes: str | None, warned: bool
) -> None:
    sets = [] if given == "null" else [f"checkpoint.mirror={given}"]
    made = priced(*sets, **({} if rented else {"lease_end_t": None}))
    assert made.config["checkpoint"]["mirror"] == becomes
    assert any("checkpoint.mirror" in warning for warning in made.warnings) is warned
    assert decided(made, "checkpoint.mirror") == ([becomes] if given == "null" and rented else [])


def test_a_lease_that_may_end_before_the_training_is_warned_of_and_one_that_is_over_refused(
    priced: Callable[..., Plan],
) -> None:
    assert not any("lease" in text for text in priced(lease_end_t=NOW + 3 * HOUR_S).warnings)
    assert any("lease ends in" in text for text in priced(lease_end_t=NOW + HOUR_S).warnings)
    for left_s in (599, -5):
        with pytest.raises(HostError) as error:
            priced(lease_end_t=NOW + left_s)
        assert error.value.code == "LEASE_OVER"


def refused(work: Callable[[], Any]) -> TrainmasterError:
    with pytest.raises(TrainmasterError) as error:
        run_async(work)
    return error.value


def test_a_spend_cap_stops_a_launch_and_nothing_was_started(operator: Operator) -> None:
    rent(operator.workspace, usd_per_h=1e9)
    # A processor's speed is unknown before it has trained.
    error = refused(lambda: operator.launch(compute="{gpu: h100}", limits="{budget_usd: 1}"))
    assert error.code == "SPEND_CAP"
    assert operator.workspace.control.runs() == []


@pytest.mark.slow
def test_a_run_is_stopped_when_its_budget_is_used_up(operator: Operator) -> None:
    rent(operator.workspace, usd_per_h=HOUR_S)  # a dollar a second

    async def spent() -> Any:
        run = await operator.launch(
            SLOW, limits="{budget_usd: 2}", checkpoint="{every: 20, mirror: none}"
        )
        assert await operator.ended(run) == "stopped"
        return await get_status(operator.workspace, run)

    status = run_async(spent)
    assert status.reason.startswith("time_limit") and status.cost.budget_usd == 2.0
    assert status.cost.usd >= 2.0 and status.cost.usd_per_h is None


@pytest.mark.slow
def test_a_run_is_saved_and_stopped_at_its_leases_end_and_continues_under_the_next(
    operator: Operator,
) -> None:
    workspace = operator.workspace
    root = workspace.home.debug_root

    def write_lease(seconds: float) -> None:
        lease = Lease("tm-0a1b2c-abc234", "runpod", "7", time.time() + seconds, stop_before_s=1.0)
        root.mkdir(parents=True, exist_ok=True)
        (root / LEASE).write_text(json.dumps(lease.to_dict()))

    async def under_lease() -> str:
        run = await operator.launch(SLOW, steps="600", checkpoint="{every: 100, mirror: none}")
        await operator.until(lambda: load_view(workspace, run).step > 0, run)
        write_lease(1.0)
        assert await operator.ended(run) == "stopped"
        return run

    run = run_async(under_lease)
    view = load_view(workspace, run)
    assert (view.record.reason, view.record.detail) == ("lease_over", "saved and ended")
    assert view.index.resume_from == view.step > 0
    instance = rent(workspace, hours=0.1)
    assert refused(lambda: resume(workspace, run)).code == "LEASE_OVER"
    assert refused(operator.launch).code == "LEASE_OVER"
    workspace.control.instances.change(instance.tag, lease_end_t=time.time() + HOUR_S)

    async def continued() -> str:
        write_lease(HOUR_S)
        await resume(workspace, run, sets=[f"env={FAST}"])
        return await operator.ended(run)

    assert run_async(continued) == "completed"


def test_tokens_have_their_price_on_a_machine_that_the_budget_is_too_small_for(
    operator: Operator, tmp_path: Path
) -> None:
    model, budget = "{preset: gpt2-124m}", "{budget_usd: 0.001}"
    spec = small_spec(tmp_path, model=model, steps="100000", limits=budget)
    dear = offer("runpod", "h100", 3.0)
    prices = run_async(lambda: prices_for(operator.workspace, spec))
    assert (prices.usd_per_btok(dear) or 0) > 0
    with pytest.raises(SpendError) as error:
        prices.plan_on(dear)  # as `provision --spec` does before anything is rented
    assert error.value.code == "SPEND_CAP"


def test_a_rented_host_shows_its_price_and_its_lease(operator: Operator) -> None:
    rent(operator.workspace, "local", usd_per_h=2.5)
    (row,) = run_async(lambda: list_hosts(operator.workspace)).hosts
    assert row.usd_per_h == 2.5 and (row.lease_ends_at or "").endswith("Z")


def test_a_plan_knows_what_its_host_costs(operator: Operator, tmp_path: Path) -> None:
    rent(operator.workspace, usd_per_h=2.5)
    spec = small_spec(tmp_path, host="debug")
    answer = run_async(lambda: plan_run(operator.workspace, spec))
    decisions = {decision.field: decision.value for decision in answer.decisions}
    assert decisions["checkpoint.mirror"] == "operator"
