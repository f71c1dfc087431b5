"""Boxes that are given back unasked: idle ones, and those whose lease ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.machines.rented_instances import HOUR_S, rent, rented
from support.runs.operator import STEADY, Operator
from support.runs.running_run import run_async

from trainmaster.machines.renting.idle import Stay, due_ends, due_idle, idle_since, lease_ends
from trainmaster.runs.stop import stop
from trainmaster.store.control.instances import RentState
from trainmaster.words.settings import Settings

NOW = 1_700_000_000.0
MINUTE_S = 60.0


def test_a_box_is_idle_since_its_last_run_has_ended_and_its_records_are_here() -> None:
    box = rented(since_t=NOW)
    assert idle_since(box, []) == NOW
    over, later = Stay(over=True, quiet_t=NOW + 100), Stay(over=True, quiet_t=NOW + 900)
    assert idle_since(box, [later, over]) == NOW + 900
    assert idle_since(box, [over, Stay(over=False, quiet_t=NOW)]) is None


@pytest.mark.parametrize("state", [one for one in RentState if one is not RentState.READY])
def test_a_box_that_is_not_ready_is_never_idle(state: RentState) -> None:
    assert idle_since(replace(rented(since_t=NOW), state=state), []) is None


def test_a_lease_is_as_good_as_over_once_its_trainings_were_stopped() -> None:
    box = rented(since_t=NOW, hours=10)
    assert not lease_ends(box, box.lease_end_t - 181)
    assert lease_ends(box, box.lease_end_t - 180)
    short = rented(since_t=NOW, hours=0.1)
    assert not lease_ends(short, NOW + 300) and lease_ends(short, NOW + 330)


def test_boxes_are_due_once_each(operator: Operator) -> None:
    workspace = operator.workspace
    now = time.time()
    box = rent(workspace, since_t=now - HOUR_S)
    ends = rent(workspace, "ends", since_t=now - 2 * HOUR_S, hours=2.0)
    rent(workspace, "young", since_t=now - 29 * MINUTE_S)
    assert {one.host for one in due_idle(workspace, now)} == {"debug", "ends"}
    assert [one.host for one in due_ends(workspace, now)] == ["ends"]
    assert due_idle(workspace, now, Settings(idle_minutes=None)) == []
    assert len(due_idle(workspace, now, Settings(idle_minutes=20))) == 3
    for one in (box, ends):  # as somebody's request to give it back is noted
        workspace.control.boxes.change(one.tag, body={"release": {"why": "released"}})
    assert due_idle(workspace, now) == [] and due_ends(workspace, now) == []


def test_a_box_with_a_run_is_idle_only_when_that_is_over(operator: Operator) -> None:
    workspace = operator.workspace
    rent(workspace, since_t=time.time() - HOUR_S)
    at_once = Settings(idle_minutes=1e-6)

    def due(after_s: float = 10.0) -> list[str]:
        return [box.host for box in due_idle(workspace, time.time() + after_s, at_once)]

    async def work(until: Callable[[], object]) -> None:
        run = await operator.launch(STEADY, steps="600", checkpoint="{mirror: none}")
        assert due() == []
        await stop(workspace, run)
        await operator.ended(run)
        await operator.until(until, run)

    run_async(lambda: work(lambda: workspace.control.runs()[0].closed))
    assert due() == ["debug"]
    assert due_idle(workspace, time.time()) == []  # the half hour counts from the run's end
