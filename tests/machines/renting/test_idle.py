"""Instances that are given back unasked: idle ones, and those whose lease ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.core.journal_records import attempt_ended, attempt_starting, state
from support.machines.rented_instances import HOUR_S, rent, rented
from support.runs.operator import STEADY, Operator
from support.runs.planted_journal import PlantedJournal
from support.runs.running_run import run_async

from trainmaster.machines.renting.maintain_rentals import (
    RunActivity,
    expiring_instances,
    idle_instances,
    idle_since,
    lease_ends,
)
from trainmaster.runs.stop import stop
from trainmaster.settings.settings import Settings
from trainmaster.store.control.instances import ReleaseRequest, RentState
from trainmaster.store.failures import Failures
from trainmaster.sync.workspace import Workspace

NOW = 1_700_000_000.0
MINUTE_S = 60.0


def test_an_instance_is_idle_since_its_last_run_has_ended_and_its_records_are_here() -> None:
    instance = rented(since_t=NOW)
    assert idle_since(instance, []) == NOW
    over, later = (
        RunActivity(over=True, last_active_t=NOW + 100),
        RunActivity(over=True, last_active_t=NOW + 900),
    )
    assert idle_since(instance, [later, over]) == NOW + 900
    assert idle_since(instance, [over, RunActivity(over=False, last_active_t=NOW)]) is None


@pytest.mark.parametrize("state", [one for one in RentState if one is not RentState.READY])
def test_an_instance_that_is_not_ready_is_never_idle(state: RentState) -> None:
    assert idle_since(replace(rented(since_t=NOW), state=state), []) is None


def test_a_lease_is_as_good_as_over_once_its_trainings_were_stopped() -> None:
    instance = rented(since_t=NOW, hours=10)
    assert not lease_ends(instance, instance.lease_end_t - 181)
    assert lease_ends(instance, instance.lease_end_t - 180)
    short = rented(since_t=NOW, hours=0.1)
    assert not lease_ends(short, NOW + 300) and lease_ends(short, NOW + 330)


def test_instances_are_due_once_each(operator: Operator) -> None:
    workspace = operator.workspace
    now, failures = time.time(), Failures(workspace.home)
    instance = rent(workspace, since_t=now - HOUR_S)
    ends = rent(workspace, "ends", since_t=now - 2 * HOUR_S, hours=2.0)
    rent(workspace, "young", since_t=now - 29 * MINUTE_S)
    assert {one.host for one in idle_instances(workspace, now, failures)} == {"debug", "ends"}
    assert [one.host for one in expiring_instances(workspace, now)] == ["ends"]
    assert idle_instances(workspace, now, failures, Settings(idle_minutes=None)) == []
    assert len(idle_instances(workspace, now, failures, Settings(idle_minutes=20))) == 3
    for one in (instance, ends):  # a release is requested
        request = ReleaseRequest(now, force=False, reason="released")
        workspace.control.instances.change(one.tag, release=request)
    assert (
        idle_instances(workspace, now, failures) == [] and expiring_instances(workspace, now) == []
    )


def test_a_kept_instance_is_released_by_its_lease_alone(operator: Operator) -> None:
    workspace, now = operator.workspace, time.time()
    kept = rent(workspace, since_t=now - HOUR_S, hours=2.0)
    workspace.control.instances.change(kept.tag, keep=True)
    assert idle_instances(workspace, now, Failures(workspace.home)) == []
    assert [one.host for one in expiring_instances(workspace, now + HOUR_S)] == [kept.host]


def test_an_instance_with_a_run_is_idle_only_when_that_is_over(operator: Operator) -> None:
    workspace = operator.workspace
    rent(workspace, since_t=time.time() - HOUR_S)
    at_once, failures = Settings(idle_minutes=1e-6), Failures(workspace.home)

    def due(after_s: float = 10.0) -> list[str]:
        idle = idle_instances(workspace, time.time() + after_s, failures, at_once)
        return [instance.host for instance in idle]

    async def work(until: Callable[[], object]) -> None:
        run = await operator.launch(STEADY, steps="600", checkpoint="{mirror: none}")
        assert due() == []
        await stop(workspace, run)
        await operator.ended(run)
        await operator.until(until, run)

    run_async(lambda: work(lambda: workspace.control.runs()[0].closed))
    assert due() == ["debug"]
    assert (
        idle_instances(workspace, time.time(), failures) == []
    )  # the half hour counts from the run's end


def test_an_instance_whose_runs_records_are_being_rebuilt_is_kept(workspace: Workspace) -> None:
    instance, failures = rent(workspace), Failures(workspace.home)
    run = PlantedJournal(workspace, "ended", instance.host)
    run.write(attempt_starting(1), attempt_ended(1, "completed"), state("completed"), t=NOW)
    workspace.control.close_run(run.run_id, 1)
    later, at_once = time.time() + HOUR_S, Settings(idle_minutes=1.0)
    assert idle_instances(workspace, later, failures, at_once) == [instance]
    with workspace.metrics.writing():
        workspace.metrics.expect_replay()
    assert idle_instances(workspace, later, failures, at_once) == []
    assert "METRICS_BEING_REBUILT" in failures.texts[instance.tag]
