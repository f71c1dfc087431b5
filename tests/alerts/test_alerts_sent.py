"""Alerts that this side sends: to whom, how often, and what came back."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.alerts.webhook_receiver import Receiver, receiving
from support.backends.tcp_proxy import free_port
from support.host.foreign_trainings import lines
from support.runs.operator import HIGH, Operator
from support.runs.running_run import CommandLine, holding, run_async, wait_until
from support.session.tiers import at_length

from trainer_runtime.core.files.durable import try_lock
from trainmaster.alerts.evaluate import evaluate_alerts
from trainmaster.alerts.send import send_due
from trainmaster.errors.errors import StateError
from trainmaster.keeper.tick import tick
from trainmaster.runs import alerts
from trainmaster.runs.upkeep.advance import fire_alerts
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace

pytestmark = pytest.mark.slow


def test_a_command_gets_the_message_on_its_standard_input(
    operator: Operator, tmp_path: Path
) -> None:
    output = tmp_path / "output.jsonl"
    program = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read())"
    command = json.dumps([sys.executable, "-c", program, str(output)])
    operator.settle(f"mine: {{kind: command, command: {command}, defaults: false}}")

    async def work() -> str:
        run = await operator.launch(alerts="[{name: done, when: state completed, to: mine}]")
        await operator.ended(run)
        # The file is there before the message is in it.
        await operator.until(lambda: output.exists() and output.read_text().endswith("\n"), run)
        return run

    run = run_async(work)
    body = json.loads(output.read_text())
    assert (body["run"], body["alert"], body["state"]) == (run, "done", "completed")


def test_what_the_box_gave_up_is_sent_from_here_under_the_same_id(
    operator: Operator, receiver: Receiver
) -> None:
    """The host has an address that leads nowhere; the client has the right one."""
    with receiving(port=free_port("127.0.0.1")) as gone:
        pass
    operator.hook(gone, "box")
    workspace = operator.workspace

    async def work() -> str:
        run = await operator.launch(alerts="[{name: done, when: state completed, to: ops}]")
        await operator.ended(run)
        # The host records the end before the message about it.
        await operator.until(lambda: load_view(workspace, run).record.alerts.deliveries, run)
        return run

    run = run_async(work)
    view = load_view(workspace, run)
    [name] = view.record.alerts.deliveries
    fold = workspace.metrics.fold(run, 1, 0)
    assert fold is not None
    # What five minutes of tries come to.
    fold["record"]["alerts"]["deliveries"][name].update(phase="failed", due_t=None, tries=9)
    workspace.metrics.put_fold(run, 1, 0, fold)
    operator.hook(receiver, "box")
    assert evaluate_alerts(workspace, run) == 1  # before the host records more
    run_async(lambda: tick(workspace))
    # At least once: the host has the right address by now, too.
    assert {body["id"] for body in receiver.taken} == {name}


def test_loss_and_silence_are_seen_from_here_once(operator: Operator, receiver: Receiver) -> None:
    operator.hook(receiver, "operator")
    workspace = operator.workspace

    async def work() -> str:
        run = await operator.launch()
        await operator.ended(run)
        for when in ("state lost", "silence 10m", "silence 2h"):
            await alerts.add_alert(workspace, when=when, run=run)
        return run

    run = run_async(work)
    long_ago = time.time() - 3630.0  # what was heard last may be some seconds old
    _as_if_unheard_since(workspace, run, long_ago)
    # A lost run is reported; its silence counts from the alert on.
    assert [evaluate_alerts(workspace, run) for _ in range(3)] == [1, 0, 0]
    for row in workspace.control.alerts.of(run):
        back = replace(row, id=f"{row.id}+", name=f"{row.name}-since", created_t=1.0)
        workspace.control.alerts.add(back)
    assert evaluate_alerts(workspace, run) == 2
    assert evaluate_alerts(workspace, run) == 0
    assert run_async(lambda: send_due(workspace)) == 3
    bodies = {body["alert"]: body for body in receiver.taken}
    assert set(bodies) == {"state-lost", "state-lost-since", "silence-10m-since"}
    assert "nothing was heard for 1 h" in bodies["state-lost-since"]["text"]
    assert bodies["state-lost-since"]["state"] == "lost"


def _as_if_unheard_since(workspace: Workspace, run: str, t: float) -> None:
    """The record of a run whose host fell silent in the middle of training."""
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


def test_a_test_says_what_came_back(operator: Operator, receiver: Receiver) -> None:
    operator.hook(receiver, "operator")
    answer = run_async(lambda: alerts.test_destination(operator.workspace, "ops"))
    assert (answer.sent, answer.status, answer.untrusted_said) == (True, 200, "ok")
    assert receiver.taken[0]["alert"] == "test"
    receiver.behaviour = lambda _: 404
    answer = run_async(lambda: alerts.test_destination(operator.workspace, "ops"))
    assert (answer.sent, answer.reason) == (False, "the receiver answered 404")


def test_an_address_may_be_a_secret_of_this_machine(
    operator: Operator, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.settle("ops: {kind: slack, url_secret: OPS_HOOK, defaults: false}")
    with pytest.raises(StateError) as missing:
        run_async(lambda: alerts.test_destination(operator.workspace, "ops"))
    assert (missing.value.code, missing.value.field) == (
        "SECRET_MISSING",
        "destinations.ops.url_secret",
    )
    monkeypatch.setenv("OPS_HOOK", receiver.url)
    assert run_async(lambda: alerts.test_destination(operator.workspace, "ops")).sent
    assert set(receiver.taken[0]) == {"text"}
    assert holding(operator.workspace.home.root, b"very-secret-path") == []


def test_receivers_that_take_long_hold_up_no_tick(operator: Operator) -> None:
    slow = json.dumps([sys.executable, "-c", "import time; time.sleep(1); raise SystemExit(1)"])
    operator.settle(f"ops: {{kind: command, command: {slow}, defaults: false}}")
    workspace = operator.workspace

    async def work() -> str:
        run = await operator.launch()
        await operator.ended(run)
        for number in range(5):
            when, name = "state completed", f"done-{number}"
            await alerts.add_alert(workspace, when=when, name=name, run=run)
        for row in workspace.control.alerts.of(run):
            back = replace(row, id=f"{row.id}+", name=f"{row.name}-since", created_t=1.0)
            workspace.control.alerts.add(back)
        assert evaluate_alerts(workspace, run) == 5
        await send_due(workspace, stays_s=2.5)  # a try and the pause after it take three
        return run

    run = run_async(work)
    tries = [row.tries for row in workspace.control.alerts.messages(run)]
    assert sorted(tries) == [0, 0, 0, 0, 1]


def test_an_evaluation_that_fails_lets_go_of_the_run(
    operator: Operator, receiver: Receiver
) -> None:
    operator.hook(receiver, "operator")
    workspace = operator.workspace

    async def work() -> None:
        run = await operator.launch(alerts="[{name: done, when: state completed, to: ops}]")
        await operator.ended(run)
        torn = {"placement": 1, "cursor": [1], "watchers": {}}
        workspace.control.alerts.put_watched(run, torn, [], time.time())
        with pytest.raises(ValueError, match="unpack"):
            fire_alerts(workspace, run)
        lock = try_lock(workspace.home.advance_lock(run))
        assert lock is not None
        os.close(lock)

    run_async(work)


def test_a_module_of_the_working_folder_is_not_taken_for_the_sender(
    operator: Operator, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("trainer_runtime", "trainmaster"):
        (tmp_path / "theirs" / name).mkdir(parents=True)
        (tmp_path / "theirs" / name / "__main__.py").write_text("raise SystemExit('taken in')")
        (tmp_path / "theirs" / name / "__init__.py").touch()
    monkeypatch.chdir(tmp_path / "theirs")
    operator.hook(receiver, "operator")
    assert run_async(lambda: alerts.test_destination(operator.workspace, "ops")).sent


@pytest.mark.parametrize("is_attached", [True, *at_length(False)])
def test_a_dead_receiver_keeps_no_run_from_being_cleaned_and_gets_its_message_later(
    command: CommandLine, operator: Operator, tmp_path: Path, is_attached: bool
) -> None:
    with receiving(port=free_port("127.0.0.1")) as receiver:
        pass
    operator.hook(receiver, "box")
    log = tmp_path / "theirs.log"
    log.write_text(lines(0, 3))
    if is_attached:
        run = command("attach", "--log", str(log))["run_id"]
        command("alerts", "add", run, "--when", "loss > 0.1", "--name", "high")
        with log.open("a") as training:
            training.write(lines(3, 4))
    else:
        run = run_async(lambda: operator.launch(alerts=HIGH))
        assert run_async(lambda: operator.ended(run)) == "completed"

    def refused() -> bool:
        rows = command("alerts", "list", run)["messages"] or [{}]
        return rows[0].get("phase") == "failed"

    wait_until(refused, "the first try")
    command("clean", run, "--yes")
    assert not operator.addresses(run).exists()
    [row] = command("alerts", "list", run)["messages"]
    assert (row["sender"], row["alert"]) == ("operator", "high")
    with receiving(port=receiver.port) as back:
        wait_until(lambda: command("tick") and back.taken, "the message", 120.0)
        assert {body["id"] for body in back.taken} == {row["id"]}
