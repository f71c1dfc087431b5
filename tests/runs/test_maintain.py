"""What is due for runs is done by servers while they live, and by commands while they wait."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import anyio
import pytest
from support.core.journal_records import attempt_starting, metric, started, state
from support.mcp.everything_due import HOST, RecordedWorkspace
from support.mcp.mcp_client import answer_of, connected
from support.runs.running_run import run_async
from support.sync.followed_run import FakeRun

from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.answers.runs import StopAnswer
from trainmaster.errors.errors import StateError
from trainmaster.home.paths import Home
from trainmaster.mcp import maintenance
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.status.status import get_status
from trainmaster.runs.stop import stop
from trainmaster.runs.upkeep.maintain import Round, due_runs, maintain, maintaining

RUN = "small-aaaaaa"
STOP = Desired(DesiredState.STOPPED, 2, why="stop")


@pytest.fixture
def opened(home: Path, tmp_path: Path) -> Iterator[RecordedWorkspace]:
    """A run that trains on a host, as it was heard a moment ago."""
    home.mkdir()
    workspace = RecordedWorkspace(Home(home), tmp_path / HOST)
    run = FakeRun(workspace, tmp_path / HOST / "runs" / RUN, HOST)
    journal = (attempt_starting(1), ("attempt_running", {"attempt": 1}), state("running"))
    run.emit("supervisor.jsonl", journal, first_t=time.time())
    run.emit("attempts/1/events.jsonl", [started(), metric(1)], first_t=time.time())
    yield workspace
    workspace.close()


def is_delivered(workspace: RecordedWorkspace) -> bool:
    return workspace.control.desired(RUN)[1]


async def serve_until(
    workspace: RecordedWorkspace, met: Callable[[], bool], *, read_only: bool = False
) -> None:
    environment = {"TRAINMASTER_HOME": str(workspace.home.root)}
    options = {"read_only": read_only, "opened": lambda _environment: nullcontext(workspace)}
    async with connected(environment, **options) as client:
        await answer_of(client, "list_runs")
        with anyio.fail_after(60):
            while not met():
                await anyio.sleep(0.02)


@pytest.mark.slow
def test_a_server_delivers_what_waits_for_a_host_though_no_call_acts(
    opened: RecordedWorkspace,
) -> None:
    opened.control.request(RUN, STOP, time.time())
    anyio.run(lambda: serve_until(opened, lambda: is_delivered(opened)))
    assert f"{HOST}: supervisor {opened.control.recorded_folder(RUN)}" in opened.written


def test_a_read_only_server_leaves_it_to_others(opened: RecordedWorkspace) -> None:
    opened.control.request(RUN, STOP, time.time())
    until = time.monotonic() + 2 * maintenance._FIRST_AFTER_S
    anyio.run(lambda: serve_until(opened, lambda: time.monotonic() > until, read_only=True))
    assert opened.written == [] and not is_delivered(opened)


@pytest.mark.slow
def test_one_server_of_a_home_at_a_time_maintains_its_runs(opened: RecordedWorkspace) -> None:
    opened.control.request(RUN, STOP, time.time())
    other = try_lock(opened.home.maintenance_lock)
    assert other is not None
    until = time.monotonic() + 2 * maintenance._FIRST_AFTER_S
    anyio.run(lambda: serve_until(opened, lambda: time.monotonic() > until))
    assert not is_delivered(opened)
    os.close(other)
    anyio.run(lambda: serve_until(opened, lambda: is_delivered(opened)))
    again = try_lock(opened.home.maintenance_lock)  # which a server gives back at its end
    assert again is not None
    os.close(again)


@pytest.mark.slow
def test_a_wait_by_itself_only_reads_and_what_is_due_is_done_beside_it(
    opened: RecordedWorkspace,
) -> None:
    opened.control.request(RUN, STOP, time.time())

    async def wait() -> str:
        return (await wait_for_event(opened, RUN, until=["completed"], timeout_s=1.0)).event

    async def wait_and_maintain() -> str:
        async with maintaining(opened, RUN):
            return await wait()

    assert run_async(wait) == "timeout"
    assert opened.written == []
    assert run_async(wait_and_maintain) == "timeout"
    assert is_delivered(opened)


def test_a_wait_whose_host_is_away_continues(opened: RecordedWorkspace) -> None:
    opened.control.request(RUN, STOP, time.time())
    opened.host.away = True

    async def wait() -> str:
        async with maintaining(opened, RUN):
            return (await wait_for_event(opened, RUN, until=["step:1"], timeout_s=30.0)).event

    assert run_async(wait) == "step:1"
    assert not is_delivered(opened)


def test_what_ends_maintenance_ends_the_wait_with_its_error(opened: RecordedWorkspace) -> None:
    async def within(run: str) -> None:
        async with maintaining(opened, run):
            opened.control.close()
            with anyio.fail_after(60):
                while len(asyncio.all_tasks()) > 1:  # until maintenance has ended
                    await asyncio.sleep(0.01)

    with pytest.raises(StateError, match="RUN_NOT_FOUND"):
        run_async(lambda: within("nobody-aaaaaa"))
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        run_async(lambda: within(RUN))


def test_a_stop_waits_for_the_process_that_advances_the_run(opened: RecordedWorkspace) -> None:
    held = try_lock(opened.home.advance_lock(RUN))
    assert held is not None

    async def let_go() -> None:
        with anyio.fail_after(60):
            while opened.control.desired(RUN)[0].state is not DesiredState.STOPPED:
                await asyncio.sleep(0.01)
        assert not is_delivered(opened)
        os.close(held)

    async def stop_meanwhile() -> StopAnswer:
        answer, _ = await asyncio.gather(stop(opened, RUN), let_go())
        return answer

    answer = run_async(stop_meanwhile)
    assert answer.pending is None and is_delivered(opened)


def test_a_host_that_is_away_is_asked_once_in_a_round(
    opened: RecordedWorkspace, tmp_path: Path
) -> None:
    runs = [RUN, *(f"small-{number}-aaaaaa" for number in range(3))]
    for name in runs[1:]:
        FakeRun(opened, tmp_path / HOST / "runs" / name, HOST)
    for name in runs:
        opened.control.request(name, STOP, time.time())
    opened.host.away = True
    found = run_async(lambda: maintain(opened, opened.control.runs(), Round(reads=False)))
    assert {one.error.code for one in found.values() if one.error} == {"HOST_UNREACHABLE"}
    assert [one.tried for one in found.values()].count(True) == 1
    assert len(opened.written) == 1


def test_of_a_closed_run_only_what_is_left_is_due(opened: RecordedWorkspace) -> None:
    assert [run.run_id for run in due_runs(opened)] == [RUN]
    opened.control.close_run(RUN, 1)
    assert [run.run_id for run in due_runs(opened)] == [RUN]  # its alerts, to the end
    opened.control.alerts.set_watched_to_end(RUN, 1)
    assert due_runs(opened) == []


def test_a_supervisor_that_is_silent_is_started_again(
    opened: RecordedWorkspace, tmp_path: Path
) -> None:
    run = FakeRun(opened, tmp_path / HOST / "runs" / "silent-aaaaaa", HOST)
    journal = (attempt_starting(1), ("attempt_running", {"attempt": 1}), state("running"))
    run.emit("supervisor.jsonl", journal, first_t=time.time() - 3600.0)

    def supervised() -> list[str]:
        return [words.rpartition("/")[2] for words in opened.written if "supervisor" in words]

    answer = run_async(lambda: get_status(opened, "silent-aaaaaa"))
    assert (answer.state, answer.next_step) == (
        "lost",
        "Its supervisor is silent: `trainmaster tick` starts it again where it has died.",
    )
    assert "its supervisor, which is silent" in str(answer.unattended)
    assert run_async(lambda: get_status(opened, RUN)).unattended is None
    run_async(lambda: maintain(opened, opened.control.runs()))
    assert supervised() == ["silent-aaaaaa"]


def test_a_thorough_round_asks_a_host_once_and_starts_the_supervisors_that_are_missing(
    opened: RecordedWorkspace, tmp_path: Path
) -> None:
    for name in ("alive-aaaaaa", "dead-aaaaaa"):
        FakeRun(opened, tmp_path / HOST / "runs" / name, HOST)
    runs = opened.control.runs()
    opened.launcher.living = {
        str(opened.control.recorded_folder(run.run_id)) for run in runs if "dead" not in run.run_id
    }
    found = run_async(lambda: maintain(opened, runs, Round(thorough=True, reads=False)))
    assert {name: one.did for name, one in found.items() if one.did} == {
        "dead-aaaaaa": ["started the supervisor"]
    }
    asked = [words for words in opened.written if "supervise" in words]
    assert asked == [f"{HOST}: which of 3 are supervised"]
