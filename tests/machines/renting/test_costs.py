"""What was spent: by instance and by run."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest
from support.machines.rented_instances import HOUR_S, rent, rented
from support.runs.operator import SLOW, STEADY, Operator
from support.runs.running_run import run_async

from trainer_runtime.core.status.reckoning import Part, Reckoning
from trainmaster.answers.rentals import CostsAnswer
from trainmaster.errors.errors import SpendError
from trainmaster.machines.renting.costs import list_costs
from trainmaster.runs.resume.next_attempt import changes_on
from trainmaster.runs.status.cost import Span, spans_of, usd_by_cause, usd_of
from trainmaster.runs.status.status import get_status
from trainmaster.runs.stop import stop
from trainmaster.store.control.instances import RentState
from trainmaster.store.control.runs import Placed
from trainmaster.sync.run_view import load_view

NOW = 1_700_000_000.0


def costs(operator: Operator) -> CostsAnswer:
    return run_async(lambda: list_costs(operator.workspace))


def test_a_run_costs_its_attempts_time_at_their_instances_prices() -> None:
    first = rented("a", usd_per_h=2.0, since_t=NOW, ended_t=NOW + 3 * HOUR_S)
    second = rented("a", usd_per_h=4.0, since_t=NOW + 4 * HOUR_S)
    other = rented("b", usd_per_h=100.0, since_t=NOW)
    instances = [first, second, other]
    now = NOW + 6 * HOUR_S
    one_hour = Span("a", NOW + HOUR_S, NOW + 2 * HOUR_S)
    assert usd_of([one_hour], instances, now) == pytest.approx(2.0)
    cut_off = Span("a", NOW + 2 * HOUR_S, None)  # its end was not observed; the instance's was
    assert usd_of([cut_off], [first], now) == pytest.approx(2.0)
    running = Span("a", NOW + 5 * HOUR_S, None)
    assert usd_of([running], instances, now) == pytest.approx(4.0)
    assert usd_of([one_hour, running], instances, now) == pytest.approx(6.0)
    on_local = Span("local", NOW, None)
    assert usd_of([on_local], instances, now) == 0.0
    never_created = replace(second, created_t=None)
    assert usd_of([running], [never_created], now) == 0.0


def test_a_runs_dollars_go_to_what_its_time_went_to() -> None:
    parts = (
        Part(0, "queue", 60.0, NOW - 60.0),
        Part(1, "preparation", 10.0),
        Part(1, "training", 20.0),
        Part(1, "rework", 10.0),
        Part(1, "crash", 5.0, NOW + 40.0),
        Part(2, "training", 30.0),
        Part(2, "idle", 600.0, NOW + 75.0),
        Part(3, "training", 10.0),
    )
    spans = [
        Span("a", NOW, NOW + 40.0, 1),
        Span("a", NOW + 45.0, NOW + 75.0, 2),
        Span("b", NOW + 675.0, NOW + 685.0, 3),
    ]
    cheap = rented("a", usd_per_h=HOUR_S, since_t=NOW - HOUR_S)  # a dollar each second
    dear = rented("b", usd_per_h=3 * HOUR_S, since_t=NOW)
    reckoning = Reckoning(745.0, parts)
    usd = usd_by_cause(reckoning, spans, [cheap, dear], NOW + 700.0)
    expected = {"preparation": 10.0, "training": 20.0 + 30.0 + 30.0, "rework": 10.0, "crash": 5.0}
    assert usd == pytest.approx(expected)
    whole = usd_of(spans, [cheap, dear], NOW + 700.0)
    assert sum(usd.values()) == pytest.approx(whole + 5.0)  # and the wait for the restart


@pytest.mark.slow
def test_costs_list_instances_runs_and_committed_costs(operator: Operator) -> None:
    workspace = operator.workspace
    now = time.time()
    rent(workspace, "old", usd_per_h=3.0, since_t=now - 10 * HOUR_S, ended_t=now - 8 * HOUR_S)
    failed = rented("never", since_t=now, ended_t=now)
    workspace.control.instances.add(replace(failed, created_t=None, end_reason="NO_CAPACITY"))
    instance = rent(workspace, usd_per_h=2000.0, since_t=now - HOUR_S, hours=4.0)

    async def trained() -> str:
        run = await operator.launch(checkpoint="{mirror: none}")
        assert await operator.ended(run) == "completed"
        return run

    run = run_async(trained)
    answer = costs(operator)
    meanwhile_usd = 2000.0 * (time.time() - now) / HOUR_S
    assert answer.spent_usd == pytest.approx(6.0 + 2000.0 + meanwhile_usd, rel=0.01)
    assert answer.committed_usd == pytest.approx(6000.0 - meanwhile_usd, rel=0.01)
    assert (answer.max_usd_total, answer.orphans) == (100.0, None)
    assert [(row.host, row.state, row.ended_at is None) for row in answer.instances] == [
        ("debug", "ready", True),
        ("old", "ended", False),
    ]
    assert list(answer.runs) == [run] and 0 < answer.runs[run] < 100
    status = run_async(lambda: get_status(workspace, run))
    assert status.cost is not None and status.cost.usd == answer.runs[run]
    used = answer.instances[0]
    assert used.lost_usd is not None and used.training_share is not None
    # An hour of which the run took seconds, and trained in a part of these.
    assert used.lost_usd["idle"] == pytest.approx(used.spent_usd - answer.runs[run], abs=0.01)
    training_usd = used.training_share * used.spent_usd
    assert training_usd + sum(used.lost_usd.values()) == pytest.approx(used.spent_usd, rel=1e-3)
    assert status.goodput is not None and status.goodput.lost_usd is not None
    assert "idle" not in status.goodput.lost_usd and "preparation" in status.goodput.lost_usd
    workspace.control.instances.change(instance.tag, RentState.ENDED, ended_t=time.time())
    again = costs(operator)
    assert (again.committed_usd, again.runs[run]) == (0.0, answer.runs[run])


@pytest.mark.slow
def test_a_run_that_was_never_on_a_rented_instance_has_no_cost(operator: Operator) -> None:
    async def trained() -> object:
        run = await operator.launch()
        assert await operator.ended(run) == "completed"
        return (await get_status(operator.workspace, run)).cost

    assert run_async(trained) is None
    assert costs(operator).runs == {}


@pytest.mark.slow
def test_an_attempt_counts_once_although_the_next_placement_copies_it(
    operator: Operator,
) -> None:
    workspace = operator.workspace

    async def trained() -> str:
        run = await operator.launch(SLOW, steps="600", checkpoint="{mirror: none}")
        await operator.until(lambda: load_view(workspace, run).step > 0, run)
        await stop(workspace, run)
        assert await operator.ended(run) == "stopped"
        return run

    run_id = run_async(trained)
    run = workspace.control.run(run_id)
    (first,) = spans_of(workspace, run)
    elsewhere = workspace.control.place_elsewhere(
        run, Placed("instance", "process", "/runs/x"), time.time()
    )
    assert elsewhere
    ((_, fold),) = [one for one in workspace.metrics.folds(run_id, 1) if one[0] == 0]
    copied = json.dumps(fold)
    workspace.metrics.connection.execute(
        "INSERT INTO folds (run_id, placement, attempt, body) VALUES (?, 2, 0, ?)", (run_id, copied)
    )
    assert spans_of(workspace, workspace.control.run(run_id)) == [first]
    assert first.host == "debug" and first.end_t is not None


@pytest.mark.slow
def test_a_resume_on_another_instance_gets_what_is_left_of_the_budget(operator: Operator) -> None:
    workspace = operator.workspace
    rent(workspace, usd_per_h=HOUR_S)  # a dollar a second
    rent(workspace, "cheap", usd_per_h=HOUR_S / 100)

    async def trained() -> str:
        budget = "{budget_usd: 60, max_runtime: 1h}"
        run = await operator.launch(STEADY, limits=budget, steps="20")
        assert await operator.ended(run) == "completed"
        return run

    run = run_async(trained)
    view = load_view(workspace, run)
    assert view.run.config.limits.max_runtime_s == 60.0
    lived_s = view.record.attempts[0].seconds(view.now)
    assert changes_on(workspace, view, "debug", "{}", {}) == {}
    assert changes_on(workspace, view, "local", "{}", {}) == {}
    allowed = changes_on(workspace, view, "cheap", "{}", {"limits.max_runtime_s": 10**6})
    assert allowed["limits.max_runtime_s"] == pytest.approx(100 * (60 - lived_s) + lived_s, 0.01)
    with pytest.raises(SpendError) as error:
        changes_on(workspace, view, "debug", "{}", {"limits.budget_usd": 0.1})
    assert error.value.code == "SPEND_CAP"


def test_checkpoints_of_a_run_that_comes_to_a_rented_instance_go_to_the_operator(
    operator: Operator,
) -> None:
    workspace = operator.workspace

    async def trained() -> str:
        run = await operator.launch(steps="20")
        assert await operator.ended(run) == "completed"
        return run

    view = load_view(workspace, run_async(trained))
    rent(workspace, "instance")
    assert changes_on(workspace, view, "instance", view.run.spec, {}) == {
        "checkpoint.mirror": "operator"
    }
    spec = json.dumps({"checkpoint": {"mirror": "none"}})
    assert changes_on(workspace, view, "instance", spec, {"checkpoint.mirror": None}) == {}
