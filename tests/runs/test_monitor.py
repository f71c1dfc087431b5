"""Each event once under a name, whatever happens to the process that reports it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.core.journal_records import (
    EventBody,
    attempt_ended,
    attempt_starting,
    evaluation,
    metric,
    started,
    state,
)
from support.machines.rented_instances import rent
from support.runs.planted_journal import EVENTS, PlantedJournal
from support.runs.planted_runs import finding
from support.runs.running_run import run_async

from trainer_runtime.core.policy.heartbeat import LOST_AFTER_S
from trainmaster.answers.monitor import MonitorEvent
from trainmaster.cli.views.monitor import line
from trainmaster.errors.errors import HostError, UsageError
from trainmaster.runs.monitor.monitor import Monitor, monitor
from trainmaster.runs.monitor.monitor_record import MonitorRecord
from trainmaster.sync.last_pass import record_pass
from trainmaster.sync.workspace import Workspace

_RUNNING = (attempt_starting(1), state("preparing"), state("running"))
_COMPLETED = (attempt_ended(1, "completed"), state("completed", reason="completed"))
_SPIKE = finding("0b0b0b0b", "loss_spike", "warning")


class Listener:
    """A monitor in this process: `hear` makes a round and gives what it reported."""

    def __init__(
        self,
        workspace: Workspace,
        name: str = "default",
        *runs: str,
        began_t: float | None = None,
    ) -> None:
        self._reported: list[MonitorEvent] = []
        self.record = MonitorRecord(workspace.home, name, began_t or time.time())
        self._monitor = Monitor(workspace, self.record, runs, self._report)

    async def _report(self, event: MonitorEvent) -> None:
        self._reported.append(event)

    def hear(self) -> list[MonitorEvent]:
        self._reported.clear()
        run_async(self._monitor.round)
        return list(self._reported)

    def words(self) -> list[str]:
        return [" ".join(filter(None, (one.name, one.event, one.detail))) for one in self.hear()]


def killed(workspace: Workspace, name: str, then: str) -> Listener:
    """The next monitor after one was killed: the record as it is on the disk."""
    data = workspace.home.monitor(name).read_bytes()
    workspace.home.monitor(then).write_bytes(data)
    return Listener(workspace, then)


def plant(workspace: Workspace, name: str, *journal: EventBody) -> PlantedJournal:
    run = PlantedJournal(workspace, name)
    run.write(started(0, 1000), metric(39, 2.61), name=EVENTS)
    run.write(*journal)
    return run


def test_each_event_comes_once_under_each_name(workspace: Workspace) -> None:
    old = plant(workspace, "old", *_RUNNING, finding("0a0a0a0a"))
    first = Listener(workspace)
    assert first.words() == []
    new = plant(workspace, "new", *_RUNNING)
    second = Listener(workspace, "second")
    assert second.words() == []
    old.write(_SPIKE, evaluation(40, 2.5), state("recovering", reason="killed"), state("running"))
    since = ["old finding loss_spike", "old recovering killed", "old running"]
    assert sorted(first.words()) == sorted([*since, "new preparing", "new running"])
    assert second.words() == since
    assert first.words() == second.words() == []
    new.write(*_COMPLETED)
    assert first.words() == second.words() == ["new completed"]
    assert first.words() == second.words() == []


def test_events_of_before_stay_unreported_though_reading_takes_long(
    workspace: Workspace,
) -> None:
    plant(workspace, "gpt", *_RUNNING, _SPIKE)
    began_t = time.time() + 60.0  # what is read is that much older
    assert Listener(workspace, began_t=began_t).words() == []


def test_the_next_monitor_reports_what_a_killed_one_did_not(workspace: Workspace) -> None:
    run = plant(workspace, "gpt", *_RUNNING)
    assert Listener(workspace, "a").words() == []
    run.write(_SPIKE)
    late = plant(workspace, "late", *_RUNNING, *_COMPLETED)
    heard = [one.event for one in killed(workspace, "a", "b").hear()]
    assert sorted(heard) == ["completed", "finding", "preparing", "running"]
    with workspace.home.monitor("b").open("ab") as torn:
        torn.write(b'{"run":"gpt-abc')
    run.write(*_COMPLETED)
    again = killed(workspace, "b", "c")
    assert again.words() == ["gpt completed"]
    again.record.close()
    late.write(state("running"), *_COMPLETED)  # resumed while no monitor was there
    assert Listener(workspace, "c").words() == ["late running", "late completed"]


def test_an_event_that_could_not_be_reported_is_reported_by_the_next(workspace: Workspace) -> None:
    reported: list[str] = []

    async def report(event: MonitorEvent) -> None:
        if len(reported) == 1:
            raise BrokenPipeError
        reported.append(event.event)

    async def listen() -> None:
        with pytest.raises(BrokenPipeError):
            await monitor(workspace, report=report)

    Listener(workspace).record.close()
    plant(workspace, "new", *_RUNNING)
    run_async(listen)
    assert reported == ["preparing"]
    assert Listener(workspace).words() == ["new running"]


def test_a_second_listener_of_a_name_hears_from_its_start_on_and_takes_over(
    workspace: Workspace,
) -> None:
    run = plant(workspace, "gpt", *_RUNNING)
    first, second = Listener(workspace), Listener(workspace)
    assert first.words() == second.words() == []
    run.write(_SPIKE)
    assert first.words() == second.words() == ["gpt finding loss_spike"]
    first.record.close()
    second.record.take_over()
    run.write(*_COMPLETED)
    assert second.words() == ["gpt completed"]
    assert killed(workspace, "default", "then").words() == []


def test_named_runs_are_reported_to_their_end(workspace: Workspace) -> None:
    run, other = plant(workspace, "gpt", *_RUNNING), plant(workspace, "other", *_RUNNING)
    reported: list[tuple[str | None, str]] = []

    async def report(event: MonitorEvent) -> None:
        reported.append((event.name, event.event))

    run.write(*_COMPLETED)
    other.write(_SPIKE)
    for name in ("one", "one", "two"):
        run_async(lambda name=name: monitor(workspace, [run.run_id], name=name, report=report))
    assert reported == [("gpt", "completed")] * 2


def reached(workspace: Workspace, t: float, error: str | None = None) -> None:
    """The newest pass over the host, as another process that follows it records it."""
    why = HostError("HOST_UNREACHABLE", error, "Try again.") if error else None
    record_pass(workspace.home, "gpu1", t=t, error=why)


def test_a_host_that_is_lost_and_back_is_reported_once_each(workspace: Workspace) -> None:
    run = PlantedJournal(workspace, "gpt")
    now, heard_t = time.time(), time.time() - LOST_AFTER_S - 60.0
    run.write(*_RUNNING, t=heard_t)
    reached(workspace, heard_t)
    listener = Listener(workspace)
    assert listener.words() == []
    reached(workspace, now, "no route")
    (lost,) = listener.hear()
    assert (lost.event, lost.host) == ("host_lost", "gpu1")
    assert lost.next_step == "`trainmaster hosts check gpu1`"
    assert lost.detail is not None
    assert "gpt among them" in lost.detail
    assert listener.words() == []
    assert killed(workspace, "default", "then").words() == []
    run.write(state("running"))
    reached(workspace, time.time())
    assert [one.event for one in listener.hear()] == ["host_back"]
    reached(workspace, time.time() + LOST_AFTER_S + 60.0)
    assert listener.words() == []


def test_a_run_whose_host_answers_without_it_is_lost_by_itself(workspace: Workspace) -> None:
    run = PlantedJournal(workspace, "gpt")
    listener = Listener(workspace)
    assert listener.words() == []
    run.write(*_RUNNING, t=time.time() - LOST_AFTER_S - 60.0)
    reached(workspace, time.time())
    assert [one.event for one in listener.hear()] == ["preparing", "running", "lost"]
    run.write(state("running"))
    assert [one.event for one in listener.hear()] == ["back"]


def test_a_lease_that_ends_within_the_hour_is_reported_once(workspace: Workspace) -> None:
    listener = Listener(workspace)
    assert listener.words() == []
    rent(workspace, "gpu2", hours=0.5)
    (ends,) = listener.hear()
    assert (ends.event, ends.next_step) == ("lease_ends", "`trainmaster costs`")
    assert ends.detail is not None
    assert "/h" in ends.detail
    assert listener.words() == []


@pytest.mark.parametrize("name", ["", "../x", ".hidden", "a b", "x" * 65])
def test_a_name_that_is_no_file_name_is_refused(workspace: Workspace, name: str) -> None:
    with pytest.raises(UsageError, match="can't name a monitor"):
        MonitorRecord(workspace.home, name, 0.0)


def test_a_line_is_bounded_clean_and_whole(tmp_path: Path) -> None:
    event = MonitorEvent(
        t=1795416312.0,
        event="finding",
        name="gpt\x1b[2J\n\u202e",
        detail="loss_spike",
        step=1200,
        metrics={"loss": 7.314159},
        next_step="trainmaster diagnose gpt-abcdef",
    )
    assert line(event) == (
        "2026-11-23T06:45:12Z gpt  finding loss_spike at step 1200, loss 7.314. "
        "Next: trainmaster diagnose gpt-abcdef"
    )
    long = line(event.model_copy(update={"name": "x" * 9000, "detail": "y" * 9000, "t": 1e300}))
    assert len(long) < 600
    assert long.isprintable()
