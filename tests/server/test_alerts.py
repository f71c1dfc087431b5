"""Alerts from the spec, the command and the defaults, told to real receivers on loopback."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from receivers import Receiver, receiving
from running import run_async, small_spec

from trainmaster.advance import tick
from trainmaster.alerting import service
from trainmaster.alerting.book import DEFAULTS
from trainmaster.alerting.looking import look
from trainmaster.alerting.sending import send_due
from trainmaster.errors import SpecError, StateError, TrainmasterError, UsageError
from trainmaster.launch import launch, plan_run
from trainmaster.resume import resume, stop
from trainmaster.wait import wait_for_event
from trainmaster.workspace import Workspace

FAST = '{TRAINMASTER_STEP_S: "0"}'
SLOW = '{TRAINMASTER_STEP_S: "0.2"}'
NAN = '{TRAINMASTER_STEP_S: "0", TRAINMASTER_FAULTS: "nan@30"}'


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


class Operator:
    def __init__(self, workspace: Workspace, folder: Path) -> None:
        self.workspace, self._folder = workspace, folder

    def settle(self, *destinations: str) -> None:
        """Write the settings: one destination a line."""
        lines = "".join(f"  {line}\n" for line in destinations)
        self.workspace.home.settings.write_text(f"destinations:\n{lines}" if lines else "")

    def hook(self, receiver: Receiver, sender: str, *, defaults: bool = False) -> None:
        told = f"defaults: {str(defaults).lower()}"
        self.settle(f"ops: {{kind: webhook, url: '{receiver.url}', sender: {sender}, {told}}}")

    async def launch(self, env: str = FAST, **changes: str) -> str:
        spec = small_spec(self._folder, host="debug", env=env, **changes)
        return (await launch(self.workspace, spec)).run_id

    async def ended(self, run: str) -> str:
        return (await wait_for_event(self.workspace, run, until=["end"], timeout_s=60)).state

    async def until(self, met: Callable[[], Any], run: str) -> None:
        """Look after a run, as any command does, until something is so."""
        deadline = time.monotonic() + 60.0
        while not met():
            assert time.monotonic() < deadline
            await service.list_alerts(self.workspace, run)
            await asyncio.sleep(0.05)


@pytest.fixture
def operator(workspace: Workspace, tmp_path: Path) -> Operator:
    return Operator(workspace, tmp_path)


HIGH = "[{name: high, severity: critical, when: 'loss > 0.1 for 3', to: ops}]"


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


def test_a_command_gets_the_message_on_its_standard_input(
    operator: Operator, tmp_path: Path
) -> None:
    told = tmp_path / "told.jsonl"
    program = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read())"
    command = json.dumps([sys.executable, "-c", program, str(told)])
    operator.settle(f"mine: {{kind: command, command: {command}, defaults: false}}")

    async def work() -> str:
        run = await operator.launch(alerts="[{name: done, when: state completed, to: mine}]")
        await operator.ended(run)
        await operator.until(told.exists, run)
        return run

    run = run_async(work)
    body = json.loads(told.read_text())
    assert (body["run"], body["alert"], body["state"]) == (run, "done", "completed")


def test_what_the_box_gave_up_is_sent_from_here_under_the_same_id(
    operator: Operator, receiver: Receiver
) -> None:
    """The box has an address that leads nowhere from there; from here it is put right."""
    with receiving() as gone:
        pass
    operator.hook(gone, "box")

    async def work() -> str:
        run = await operator.launch(alerts="[{name: done, when: state completed, to: ops}]")
        await operator.ended(run)
        return run

    run = run_async(work)
    view = service.load_view(operator.workspace, run)
    [name] = view.record.alerts.told
    fold = operator.workspace.metrics.fold(run, 1, 0)
    assert fold is not None
    # What five minutes of tries come to.
    fold["record"]["alerts"]["told"][name].update(phase="failed", due_t=None, tries=9)
    operator.workspace.metrics.put_fold(run, 1, 0, fold)
    operator.hook(receiver, "box")
    run_async(lambda: tick(operator.workspace))
    assert [body["id"] for body in receiver.taken] == [name]


def test_loss_and_silence_are_seen_from_here_once(operator: Operator, receiver: Receiver) -> None:
    operator.hook(receiver, "operator")
    workspace = operator.workspace

    async def work() -> str:
        run = await operator.launch()
        await operator.ended(run)
        for when in ("state lost", "silence 10m", "silence 2h"):
            await service.add_alert(workspace, when=when, run=run)
        return run

    run = run_async(work)
    long_ago = time.time() - 3600.0
    _as_if_unheard_since(workspace, run, long_ago)
    # A run that is lost is told of; its silence counts from the alert on.
    assert [look(workspace, run) for _ in range(3)] == [1, 0, 0]
    for row in workspace.control.alerts.of(run):
        back = replace(row, id=f"{row.id}+", name=f"{row.name}-since", created_t=1.0)
        workspace.control.alerts.add(back)
    assert look(workspace, run) == 2
    assert look(workspace, run) == 0
    assert run_async(lambda: send_due(workspace)) == 3
    told = {body["alert"]: body for body in receiver.taken}
    assert set(told) == {"state-lost", "state-lost-since", "silence-10m-since"}
    assert "nothing was heard for 1 h" in told["state-lost-since"]["text"]
    assert told["state-lost-since"]["state"] == "lost"


def _as_if_unheard_since(workspace: Workspace, run: str, t: float) -> None:
    """The record of a run whose box fell silent in the middle of training."""
    with workspace.metrics.writing():
        for attempt, body in workspace.metrics.folds(run, 1):
            if attempt == 0:
                body["record"].update(state="running", heartbeat_t=t, closed=False)
                body["record"]["attempts"][0].update(state="running", running_t=t, ended_t=None)
            else:
                body["progress"].update(last_event_t=t)
            workspace.metrics.put_fold(run, 1, attempt, body)


def test_a_message_that_is_refused_waits_and_is_shown_with_the_reason(
    operator: Operator,
) -> None:
    with receiving(lambda number: 503 if number == 0 else 200) as receiver:
        operator.hook(receiver, "operator")

        async def work() -> None:
            run = await operator.launch(alerts=HIGH)
            await operator.ended(run)
            await send_due(operator.workspace, stays_s=30.0)
            await operator.until(lambda: receiver.taken, run)

        run_async(work)
    assert len(receiver.asked) == 2
    assert len({body["id"] for body in receiver.asked}) == 1


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


def test_a_test_says_what_came_back(operator: Operator, receiver: Receiver) -> None:
    operator.hook(receiver, "operator")
    answer = run_async(lambda: service.test_destination(operator.workspace, "ops"))
    assert (answer.sent, answer.status, answer.said) == (True, 200, "ok")
    assert receiver.taken[0]["alert"] == "test"
    receiver.behaviour = lambda _: 404
    answer = run_async(lambda: service.test_destination(operator.workspace, "ops"))
    assert (answer.sent, answer.reason) == (False, "the receiver answered 404")


def test_an_address_may_be_a_secret_of_this_machine(
    operator: Operator, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.settle("ops: {kind: slack, url_secret: OPS_HOOK, defaults: false}")
    with pytest.raises(StateError) as missing:
        run_async(lambda: service.test_destination(operator.workspace, "ops"))
    assert (missing.value.code, missing.value.field) == (
        "SECRET_MISSING",
        "destinations.ops.url_secret",
    )
    monkeypatch.setenv("OPS_HOOK", receiver.url)
    assert run_async(lambda: service.test_destination(operator.workspace, "ops")).sent
    assert set(receiver.taken[0]) == {"text"}
    home = operator.workspace.home.root
    holding = [
        path
        for path in home.rglob("*")
        if path.is_file() and b"very-secret-path" in path.read_bytes()
    ]
    assert holding == []


@pytest.mark.parametrize(
    ("arguments", "code", "field"),
    [
        ({"when": "loss >"}, "CONDITION_INVALID", "when"),
        ({"when": "finding los_spike"}, "CONDITION_INVALID", "when"),
        ({"when": "loss > 1", "to": "nobody"}, "DESTINATION_UNKNOWN", "to"),
        ({"when": "loss > 1", "severity": "loud"}, "BAD_ARGUMENT", "severity"),
        ({"when": "loss > 1", "name": "../x"}, "BAD_ARGUMENT", "name"),
        ({"when": "loss > 1", "run": "nothing"}, "RUN_NOT_FOUND", None),
        ({"when": "loss > 2", "name": "there"}, "ALERT_EXISTS", "name"),
    ],
)
def test_a_bad_alert_is_refused_by_name(
    operator: Operator,
    receiver: Receiver,
    arguments: dict[str, str],
    code: str,
    field: str | None,
) -> None:
    operator.hook(receiver, "box")
    run_async(lambda: service.add_alert(operator.workspace, when="loss > 1", name="there"))
    with pytest.raises(TrainmasterError) as refused:
        run_async(lambda: service.add_alert(operator.workspace, **arguments))
    assert (refused.value.code, refused.value.field) == (code, field)


def test_a_bad_alert_of_a_spec_is_refused_at_its_place(operator: Operator, tmp_path: Path) -> None:
    def refusal(alerts: str) -> TrainmasterError:
        spec = small_spec(tmp_path, host="debug", alerts=alerts)
        with pytest.raises((SpecError, UsageError)) as refused:
            run_async(lambda: plan_run(operator.workspace, spec))
        return refused.value

    bad = refusal("[{name: a, when: loss >> 3, to: ops}]")
    assert (bad.code, bad.field) == ("CONDITION_INVALID", "alerts[0].when")
    assert "At character 6 stands '>>'" in bad.message
    unknown = refusal("[{name: a, when: loss > 3, to: ops}]")
    assert (unknown.code, unknown.field) == ("DESTINATION_UNKNOWN", "alerts[0].to")


@pytest.mark.parametrize(
    "destination",
    [
        "{kind: webhook}",
        "{kind: webhook, url: 'ftp://x/y'}",
        "{kind: webhook, url: 'https://x/y', url_secret: NAME}",
        "{kind: command, command: []}",
        "{kind: command, command: [x], sender: box}",
        "{kind: pager, url: 'https://x/y'}",
        "{kind: slack, command: [x]}",
        "{kind: slack, url: 'https://x/y', token: z}",
    ],
)
def test_a_destination_without_one_address_of_its_kind_is_refused(
    operator: Operator, destination: str
) -> None:
    operator.settle(f"ops: {destination}")
    with pytest.raises(StateError) as refused:
        run_async(lambda: service.list_alerts(operator.workspace))
    assert refused.value.code == "SETTINGS_NOT_READABLE"
    assert str(refused.value.field).startswith("destinations")


def test_settings_that_break_later_hold_up_no_training(operator: Operator) -> None:
    async def work() -> str:
        run = await operator.launch(SLOW, steps="5", eval="{every_steps: 5, batches: 1}")
        operator.workspace.home.settings.write_text("destinations: [nonsense]\n")
        return await operator.ended(run)

    assert run_async(work) == "completed"
