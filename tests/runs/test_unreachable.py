"""What answers say of a run whose host refuses the connection."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from support.backends.tcp_proxy import free_port
from support.core.journal_records import attempt_starting, lines, metric, started
from support.runs.running_run import run_async

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState, RunState
from trainmaster.cli.output import emit_log
from trainmaster.cli.progress_bar import describe
from trainmaster.cli.views.blocks import view as shown
from trainmaster.machines.check_host import check_host
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.lists.list_checkpoints import list_checkpoints
from trainmaster.runs.log.logs import read_log
from trainmaster.runs.status.next_step import next_step
from trainmaster.runs.status.status import get_status
from trainmaster.store.host_record import HostRecord
from trainmaster.store.run import Run
from trainmaster.sync.ingest import ingest_placement
from trainmaster.sync.refresh import refresh
from trainmaster.sync.workspace import Workspace

RUN = "small-abc234"
_CONFIG: dict[str, Any] = {
    "steps": 60,
    "checkpoint": {"metric": "val_loss", "mirror": None},
    "data": {},
    "environment": {},
}


@pytest.fixture
def away(workspace: Workspace) -> Workspace:
    """A run that was heard of once, on a host whose port is closed by now."""
    record = HostRecord(name="gpu1", address="127.0.0.1", port=free_port("127.0.0.1"))
    workspace.control.put_host(record, time.time())
    run = Run(RUN, "small", time.time(), "gpu1", "", _CONFIG, {}, {})
    workspace.control.add_run(run, Desired(DesiredState.RUNNING, 1), "ssh", "/x", None)
    workspace.control.set_placed(run, time.time())
    workspace.control.set_delivered(RUN, 1, time.time())
    mirror = workspace.mirror.of(RUN, 1)
    journal = [attempt_starting(1), ("attempt_running", {"attempt": 1})]
    events = [started(0, 60), metric(1)]
    mirror.append("attempts/1/events.jsonl", b"".join(lines(events)))
    mirror.append("attempts/1/train.log", b"step 1\n")
    mirror.append("supervisor.jsonl", b"".join(lines(journal, first_t=time.time())))
    ingest_placement(workspace.metrics, mirror, RUN, 1)
    return workspace


@pytest.mark.slow
def test_every_answer_that_may_be_old_says_that_the_host_was_not_reached(
    away: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    log = run_async(lambda: read_log(away, RUN))
    assert log.lines == ["step 1"]
    assert log.unreachable is not None and "gpu1" in log.unreachable
    emit_log(log, False)
    printed = capsys.readouterr()
    assert printed.out == "step 1\n" and printed.err.startswith("Not reached: ")

    checkpoints = run_async(lambda: list_checkpoints(away, RUN))
    assert checkpoints.unreachable is not None
    assert any("Not reached" in str(block) for block in shown(checkpoints))

    status = run_async(lambda: get_status(away, RUN))
    assert status.unreachable is not None
    assert describe(status).endswith("(host not reached)")

    waited = run_async(lambda: wait_for_event(away, RUN, timeout_s=0.2))
    assert waited.event == "timeout" and waited.unreachable is not None
    assert any("Not reached" in str(block) for block in shown(waited))


def test_where_the_host_is_gone_the_advice_leads_to_another(away: Workspace) -> None:
    elsewhere = f"`trainmaster resume {RUN} --host HOST --abandon`"
    checked = run_async(lambda: check_host(away, "gpu1"))
    assert elsewhere in (checked.next_step or "")
    view = run_async(lambda: refresh(away, RUN))
    later = time.time() + 600.0
    view = replace(view, now=later, last_read_t=later, incomplete=None)
    assert view.state is RunState.LOST
    assert "`trainmaster hosts check gpu1` finds the cause. If it is gone" in next_step(view, ())
    assert elsewhere in next_step(view, ())
