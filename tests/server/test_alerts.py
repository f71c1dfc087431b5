"""Alerts from the spec, the command and the defaults, told to real receivers on loopback."""

from __future__ import annotations

import pytest
from operating import HIGH, NAN, SLOW, Operator
from receivers import Receiver
from running import run_async

from trainmaster.advance import tick
from trainmaster.alerting import service
from trainmaster.alerting.book import DEFAULTS
from trainmaster.errors import StateError, UsageError
from trainmaster.resume import resume, stop
from trainmaster.wait import wait_for_event


@pytest.mark.parametrize("sender", ["box", "operator"])
def test_an_alert_of_the_spec_is_told_by_whoever_is_to_tell_it(
    operator: Operator, receiver: Receiver, sender: str
) -> None:
    operator.hook(receiver, sender)

    async def work() -> str:
        run = await operator.launch(alerts=HIGH)
        await operator.ended(run)
        await operator.until(lambda: receiver.taken, run)
        answer = await service.list_alerts(operator.workspace, run)
        assert [(row.sender, row.origin) for row in answer.alerts] == [(sender, "spec")]
        await operator.until(lambda: sent(run) == [("high", sender, "sent")], run)
        return run

    def sent(run: str) -> list[tuple[str, str, str]]:
        rows = service._messages(operator.workspace, run)
        return [(row.alert, row.sender, row.phase) for row in rows]

    run = run_async(work)
    assert {body["id"] for body in receiver.taken} == {receiver.taken[0]["id"]}
    assert receiver.taken[0]["run"] == run
    assert receiver.taken[0]["step"] == 3


def test_an_alert_added_while_a_run_goes_on_is_told_by_its_box(
    operator: Operator, receiver: Receiver
) -> None:
    operator.hook(receiver, "box")

    async def work() -> None:
        run = await operator.launch(SLOW)
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


def test_a_destination_is_told_of_failures_by_itself(
    operator: Operator, receiver: Receiver
) -> None:
    operator.hook(receiver, "box", defaults=True)

    async def work() -> str:
        run = await operator.launch(NAN, recovery="{on_nan: stop}")
        state = await operator.ended(run)
        await operator.until(lambda: receiver.of("ops-failed"), run)
        await operator.until(lambda: receiver.of("ops-nan-loss"), run)
        return state

    assert run_async(work) == "failed"
    answer = run_async(lambda: service.list_alerts(operator.workspace))
    assert [row.name for row in answer.alerts] == [f"ops-{name}" for name, _, _ in DEFAULTS]
    assert {row.name: row.sender for row in answer.alerts}["ops-lost"] == "operator"


def test_runs_that_ended_before_a_destination_was_set_are_not_told_of(
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


def test_what_happened_while_nobody_looked_is_told_by_the_next_tick_once(
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


def test_a_removed_alert_is_told_no_more_and_a_removed_default_stays_away(
    operator: Operator, receiver: Receiver
) -> None:
    operator.hook(receiver, "box", defaults=True)

    async def work() -> None:
        await service.remove_alert(operator.workspace, "ops-failed")
        run = await operator.launch(NAN, recovery="{on_nan: stop}", alerts=HIGH)
        await operator.ended(run)
        await operator.until(lambda: receiver.of("high"), run)
        await operator.until(lambda: receiver.of("ops-nan-loss"), run)
        names = {row.name for row in (await service.list_alerts(operator.workspace)).alerts}
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
        alerts = (await service.list_alerts(operator.workspace, run)).alerts
        assert [row.name for row in alerts] == ["later"]

    run_async(work)
    assert receiver.of("later")[0]["step"] > 60
