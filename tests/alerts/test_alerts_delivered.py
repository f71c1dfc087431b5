"""Alerts from the spec, the command and the defaults, sent to real receivers on loopback."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from support.alerts.webhook_receiver import Receiver
from support.runs.operator import HIGH, NAN, SLOW, Operator
from support.runs.running_run import run_async

from trainmaster.alerts.rules import DEFAULTS
from trainmaster.errors.errors import StateError, UsageError
from trainmaster.keeper.tick import tick
from trainmaster.runs import alerts as service
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.lists.list_alerts import list_alerts
from trainmaster.runs.resume.resume import resume
from trainmaster.runs.stop import stop
from trainmaster.runs.upkeep.maintain import maintain
from trainmaster.sync.follow import catch_up


@pytest.mark.slow
@pytest.mark.parametrize("sender", ["box", "operator"])
def test_an_alert_of_the_spec_is_sent_by_its_sender(
    operator: Operator, receiver: Receiver, sender: str
) -> None:
    operator.hook(receiver, sender)

    async def work() -> str:
        run = await operator.launch(alerts=HIGH)
        await operator.ended(run)
        await operator.until(lambda: receiver.taken, run)
        answer = await list_alerts(operator.workspace, run)
        assert [(row.sender, row.origin) for row in answer.alerts] == [(sender, "spec")]
        while await messages(run) != [("high", sender, "sent")]:
            await maintain(operator.workspace, [operator.workspace.control.run(run)])
        return run

    async def messages(run: str) -> list[tuple[str, str, str]]:
        rows = (await list_alerts(operator.workspace, run)).messages or ()
        return [(row.alert, row.sender, row.phase) for row in rows]

    run = run_async(lambda: asyncio.wait_for(work(), 120.0))
    assert {body["id"] for body in receiver.taken} == {receiver.taken[0]["id"]}
    assert receiver.taken[0]["run"] == run
    assert receiver.taken[0]["step"] == 3


@pytest.mark.slow
def test_an_alert_added_to_a_running_run_is_sent_by_its_host(
    operator: Operator, receiver: Receiver
) -> None:
    operator.hook(receiver, "box")

    async def work() -> None:
        run = await operator.launch(SLOW, steps="600")
        await wait_for_event(operator.workspace, run, until=["step:2"], timeout_s=60)
        added = await service.add_alert(operator.workspace, when="loss > 0.1", run=run)
        assert (added.alert.name, added.alert.to, added.alert.sender) == ("loss-0-1", "ops", "box")
        assert added.pending is None
        await operator.until(lambda: receiver.taken, run)
        await stop(operator.workspace, run, grace_s=0.0)
        await operator.ended(run)

    run_async(work)
    assert {body["alert"] for body in receiver.taken} == {"loss-0-1"}
    assert receiver.taken[0]["step"] >= 2


@pytest.mark.slow
def test_a_destination_gets_failures_by_default(operator: Operator, receiver: Receiver) -> None:
    operator.hook(receiver, "box", defaults=True)

    async def work() -> str:
        run = await operator.launch(NAN, recovery="{on_nan: stop}")
        state = await operator.ended(run)
        await operator.until(lambda: receiver.of("ops-failed"), run)
        await operator.until(lambda: receiver.of("ops-nan-loss"), run)
        return state

    assert run_async(work) == "failed"
    answer = run_async(lambda: list_alerts(operator.workspace))
    assert [row.name for row in answer.alerts] == [f"ops-{name}" for name, _, _ in DEFAULTS]
    assert {row.name: row.sender for row in answer.alerts}["ops-lost"] == "operator"


@pytest.mark.slow
def test_runs_that_ended_before_a_destination_was_set_are_not_reported(
    operator: Operator, receiver: Receiver
) -> None:
    async def work() -> None:
        run = await operator.launch(NAN, recovery="{on_nan: stop}")
        assert await operator.ended(run) == "failed"
        operator.hook(receiver, "operator", defaults=True)
        await tick(operator.workspace)
        await tick(operator.workspace)

    run_async(work)
    assert receiver.asked == []


@pytest.mark.slow
def test_events_without_any_reader_are_sent_once_by_the_next_tick(
    operator: Operator, receiver: Receiver
) -> None:
    operator.hook(receiver, "operator", defaults=True)

    async def work() -> None:
        run = await operator.launch(NAN, recovery="{on_nan: stop}")
        await operator.ended(run)
        await operator.until(lambda: receiver.of("ops-failed"), run)
        for _ in range(3):
            await tick(operator.workspace)

    run_async(work)
    assert len(receiver.of("ops-failed")) == 1


@pytest.mark.slow
def test_a_removed_alert_is_not_sent_and_a_removed_default_stays_removed(
    operator: Operator, receiver: Receiver
) -> None:
    operator.hook(receiver, "box", defaults=True)

    async def work() -> None:
        await service.remove_alert(operator.workspace, "ops-failed")
        run = await operator.launch(NAN, recovery="{on_nan: stop}", alerts=HIGH)
        await operator.ended(run)
        await operator.until(lambda: receiver.of("high"), run)
        await operator.until(lambda: receiver.of("ops-nan-loss"), run)
        names = {row.name for row in (await list_alerts(operator.workspace)).alerts}
        assert "ops-failed" not in names
        with pytest.raises(StateError) as refused:
            await service.remove_alert(operator.workspace, "ops-failed")
        assert refused.value.code == "ALERT_NOT_FOUND"

    run_async(work)
    assert receiver.of("ops-failed") == []


def test_a_resume_may_change_the_alerts_of_a_run(operator: Operator, receiver: Receiver) -> None:
    operator.hook(receiver, "box")
    later = "[{name: later, when: 'loss > 0.1', to: ops}]"

    async def work() -> None:
        run = await operator.launch(alerts=HIGH)
        await operator.ended(run)
        await operator.until(lambda: receiver.of("high"), run)
        with pytest.raises(UsageError) as refused:
            await resume(
                operator.workspace, run, sets=["steps=90", f"alerts={later.replace('ops', 'x')}"]
            )
        assert refused.value.code == "DESTINATION_UNKNOWN"
        await resume(operator.workspace, run, sets=["steps=90", f"alerts={later}"])
        await operator.ended(run)
        await operator.until(lambda: receiver.of("later"), run)
        alerts = (await list_alerts(operator.workspace, run)).alerts
        assert [row.name for row in alerts] == ["later"]

    run_async(work)
    assert receiver.of("later")[0]["step"] > 60


@pytest.mark.long
@pytest.mark.slow
def test_an_end_is_sent_also_after_an_earlier_one_without_a_read_between(
    operator: Operator, receiver: Receiver
) -> None:
    operator.hook(receiver, "operator")
    workspace = operator.workspace

    async def work() -> None:
        run = await operator.launch(alerts="[{name: done, when: state completed, to: ops}]")
        await operator.ended(run)
        await tick(workspace)
        await resume(workspace, run, sets=["steps=90"])
        while not workspace.control.run(run).closed:
            await catch_up(workspace, "debug")
        deadline = time.monotonic() + 60.0
        while len(receiver.taken) < 2 and time.monotonic() < deadline:
            await tick(workspace)
            await asyncio.sleep(0.05)

    run_async(work)
    assert [body["step"] for body in receiver.of("done")] == [60, 90]


def test_alerts_of_a_spec_come_back_with_their_destination(
    operator: Operator, receiver: Receiver
) -> None:
    operator.hook(receiver, "box")
    workspace = operator.workspace

    async def names(run: str) -> list[tuple[str, str]]:
        rows = (await list_alerts(workspace, run)).alerts
        return [(row.name, row.when) for row in rows]

    async def work() -> None:
        run = await operator.launch(alerts=HIGH)
        await operator.ended(run)
        there = await names(run)
        operator.settle()
        assert await names(run) == []
        operator.hook(receiver, "box")
        assert await names(run) == there == [("high", "loss > 0.1 for 3")]
        await service.remove_alert(workspace, "high", run)
        assert await names(run) == []

    run_async(work)


@pytest.mark.slow
def test_one_destination_without_an_address_does_not_stop_the_others(
    operator: Operator, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = operator.workspace
    there = f"ops: {{kind: webhook, url: '{receiver.url}', defaults: false}}"
    operator.settle(there, "away: {kind: webhook, url_secret: AWAY_HOOK}")

    async def work() -> None:
        run = await operator.launch(SLOW, steps="600", alerts=HIGH)
        await operator.until(lambda: receiver.of("high"), run)
        monkeypatch.setenv("AWAY_HOOK", receiver.url)
        await service.add_alert(workspace, when="loss > 0.1", to="away", name="late", run=run)
        await operator.until(lambda: receiver.of("late"), run)
        monkeypatch.delenv("AWAY_HOOK")
        await service.add_alert(workspace, when="loss > 0.2", to="ops", name="held", run=run)
        given = json.loads(operator.addresses(run).read_text())
        assert set(given["destinations"]) == {"ops", "away"}
        await stop(workspace, run, grace_s=0.0)
        await operator.ended(run)

    run_async(work)
