"""A run is lost only after a failed read of its host; time without a read does not count."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

import pytest
from support.backends.tcp_proxy import free_port
from support.core.journal_records import attempt_starting, lines, metric, started, state
from support.runs.running_run import run_async

from trainer_runtime.core.policy.heartbeat import LOST_AFTER_S
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.alerts.evaluate import evaluate_alerts
from trainmaster.errors.errors import HostError
from trainmaster.runs import alerts as service
from trainmaster.runs.status.status import get_status
from trainmaster.runs.upkeep.maintain import maintain
from trainmaster.store.host_record import HostRecord
from trainmaster.store.run import Run
from trainmaster.sync.ingest import ingest_placement
from trainmaster.sync.last_pass import record_pass
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace

RUN = "small-abc234"
_CONFIG: dict[str, Any] = {
    "framework": "attached",
    "attached": {},
    "steps": None,
    "checkpoint": {"metric": "val_loss", "mirror": None},
    "data": {},
    "environment": {},
}
_LONG_AGO_S = LOST_AFTER_S + 60.0


@pytest.fixture
def unheard(workspace: Workspace) -> Workspace:
    """A run that was heard of for the last time a while ago, on a host that is closed by now."""
    workspace.home.settings.write_text("destinations:\n  ops: {kind: command, command: [cat]}\n")
    record = HostRecord(name="gpu1", address="127.0.0.1", port=free_port("127.0.0.1"))
    workspace.control.put_host(record, time.time())
    run = Run(RUN, "small", time.time(), "gpu1", "", _CONFIG, {}, {})
    workspace.control.add_run(run, Desired(DesiredState.RUNNING, 1), "ssh", "/x", None)
    workspace.control.set_placed(run, time.time())
    workspace.control.set_delivered(RUN, 1, time.time())
    heard(workspace, time.time() - _LONG_AGO_S)
    return workspace


def heard(workspace: Workspace, t: float) -> None:
    mirror = workspace.mirror.of(RUN, 1)
    journal = [attempt_starting(1), ("attempt_running", {"attempt": 1}), state("running")]
    first_t = t - len(journal)
    events = [started(0, 60), metric(1)]
    mirror.append("attempts/1/events.jsonl", b"".join(lines(events, first_t=first_t)))
    mirror.append("supervisor.jsonl", b"".join(lines(journal, first_t=first_t)))
    ingest_placement(workspace.metrics, mirror, RUN, 1)


def record_read(workspace: Workspace, t: float, error: dict[str, str] | None = None) -> None:
    why = None if error is None else HostError(error["code"], error["message"], "Try again.")
    record_pass(workspace.home, "gpu1", t=t, error=why)


def test_a_heartbeat_of_the_future_does_not_hide_a_later_silence(unheard: Workspace) -> None:
    heard(unheard, time.time() + 1e9)
    view = load_view(unheard, RUN)
    assert view.state.value == "running"
    path = unheard.mirror.of(RUN, 1).path("supervisor.jsonl")
    os.utime(path, (time.time() - _LONG_AGO_S,) * 2)
    run_async(lambda: get_status(unheard, RUN))
    view = load_view(unheard, RUN)
    assert view.state.value == "lost"
    assert max(view.record.heartbeat_t or 0.0, view.record.state_t or 0.0) < time.time()


@pytest.mark.parametrize("error", [None, {"code": "HOST_UNREACHABLE", "message": "away"}])
def test_only_a_read_after_the_heartbeats_limit_makes_a_run_lost(
    unheard: Workspace, error: dict[str, str] | None
) -> None:
    assert load_view(unheard, RUN).state.value == "running"
    record_read(unheard, time.time() - _LONG_AGO_S + 30.0, error)
    assert load_view(unheard, RUN).state.value == "running"
    record_read(unheard, time.time(), error)
    assert load_view(unheard, RUN).state.value == "lost"


def test_a_host_that_nobody_asked_is_neither_lost_nor_silent_for_an_alert(
    unheard: Workspace,
) -> None:
    async def alerts() -> None:
        for when in ("state lost", "silence 1m"):
            await service.add_alert(unheard, when=when, name=when.split()[0])

    run_async(alerts)
    for row in unheard.control.alerts.all():  # and such as count from before
        back = replace(row, id=f"{row.id}+", name=f"{row.name}-since", created_t=1.0)
        unheard.control.alerts.add(back)
    record_read(unheard, time.time() - _LONG_AGO_S + 30.0)
    assert evaluate_alerts(unheard, RUN) == 0
    record_read(unheard, time.time())
    assert evaluate_alerts(unheard, RUN) > 0
    alerts = {row.message.alert for row in unheard.control.alerts.messages(RUN)}
    assert {"state-since", "silence-since"} <= alerts


def test_a_log_that_grows_without_figures_is_not_silent(unheard: Workspace) -> None:
    async def alert() -> None:
        await service.add_alert(unheard, when="silence 1m", name="silence")

    run_async(alert)
    for row in unheard.control.alerts.all():
        back = replace(row, id=f"{row.id}+", name=f"{row.name}-since", created_t=1.0)
        unheard.control.alerts.add(back)
    record_read(unheard, time.time())
    unheard.mirror.of(RUN, 1).append("attempts/1/train.log", b"still loading the data\n")
    evaluate_alerts(unheard, RUN)
    alerts = {row.message.alert for row in unheard.control.alerts.messages(RUN)}
    assert "silence-since" not in alerts
    assert "ops-lost" in alerts


@pytest.mark.slow
def test_a_status_that_finds_the_host_away_says_lost_and_leaves_the_alert_to_maintenance(
    unheard: Workspace,
) -> None:
    record_read(unheard, time.time() - _LONG_AGO_S + 30.0)
    status = run_async(lambda: get_status(unheard, RUN))
    assert status.state == "lost"
    assert status.reason is not None and status.reason.startswith("HOST_UNREACHABLE")
    assert unheard.control.alerts.messages(RUN) == []
    run_async(lambda: maintain(unheard, [unheard.control.run(RUN)]))
    alerts = {row.message.alert for row in unheard.control.alerts.messages(RUN)}
    assert "ops-lost" in alerts
