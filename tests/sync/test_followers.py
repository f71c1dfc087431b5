"""Both ways of following, through hosts that part, lie about the time, or lack Python."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.backends.unreliable_transport import HOSTILE_FOLLOWER, PartingHost
from support.core.journal_records import FIRST_T, metric, started
from support.runs.running_run import holding, run_async
from support.sync.follow_until import all_have, refresh, seen, until
from support.sync.followed_run import HOST, FakeRun, FollowedWorkspace, end_run, heartbeat

from trainer_runtime.core.files.compacted import REGION_BYTES
from trainer_runtime.core.protocol.lines import encode
from trainer_runtime.host.files.compaction import Compaction
from trainmaster.home.paths import Home
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.log.logs import read_log
from trainmaster.runs.status.status import status_of
from trainmaster.sync.follow import catch_up, following
from trainmaster.sync.last_pass import last_pass
from trainmaster.sync.run_view import load_view

pytestmark = pytest.mark.slow

EVENTS, LOG, JOURNAL = "attempts/1/events.jsonl", "attempts/1/train.log", "supervisor.jsonl"
SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))


@pytest.fixture
def host(home: Path) -> PartingHost:
    return PartingHost(home / "box")


@pytest.fixture(params=["multiplexed", "polled"])
def workspace(
    home: Path, host: PartingHost, request: pytest.FixtureRequest
) -> Iterator[FollowedWorkspace]:
    multiplexed = request.param == "multiplexed"
    opened = FollowedWorkspace(Home(home), host, multiplexed=multiplexed)
    yield opened
    opened.close()


@pytest.fixture
def run(workspace: FollowedWorkspace, home: Path) -> FakeRun:
    return FakeRun(workspace, home / "box" / "runs" / "small-abc234")


only_multiplexed = pytest.mark.parametrize("workspace", ["multiplexed"], indirect=True)


def test_lines_of_other_runs_than_the_awaited_one_are_ingested_once_anybody_asks(
    workspace: FollowedWorkspace, run: FakeRun, home: Path
) -> None:
    other = FakeRun(workspace, home / "box" / "runs" / "other-abc234")
    for one in (run, other):
        one.emit(EVENTS, [started(), metric(1)], first_t=FIRST_T)

    async def work() -> None:
        async with following(workspace, HOST, run.run_id):
            await seen(lambda: other.steps() == run.steps() == [1])
            for one in (other, run):
                one.emit(EVENTS, [metric(2)], first_t=FIRST_T + 9)
            await seen(lambda: run.steps() == [1, 2])
            read_t = last_pass(workspace.home, HOST).t
            other.emit(EVENTS, [metric(3)], first_t=FIRST_T + 10)
            await catch_up(workspace, HOST)
            assert other.steps() == [1, 2, 3]
            assert last_pass(workspace.home, HOST).t > read_t

    run_async(work)


@pytest.mark.long  # it waits for the half minute after which all is ingested
@only_multiplexed
def test_lines_of_other_runs_are_ingested_in_the_end_though_nobody_asks(
    workspace: FollowedWorkspace, run: FakeRun, home: Path
) -> None:
    other = FakeRun(workspace, home / "box" / "runs" / "other-abc234")

    async def work() -> None:
        async with following(workspace, HOST, run.run_id):
            for step in (1, 2):
                for follows in (other, run):
                    follows.emit(EVENTS, [metric(step)], first_t=FIRST_T + step)
                await seen(lambda last=step: run.steps()[-1:] == [last])
            assert other.steps() == [1]
            await seen(lambda: other.steps() == [1, 2])

    run_async(work)


def test_a_second_follower_gets_the_news_of_its_run_without_asking(
    workspace: FollowedWorkspace, run: FakeRun, home: Path
) -> None:
    other = FakeRun(workspace, home / "box" / "runs" / "other-abc234")

    async def work() -> None:
        async with following(workspace, HOST, run.run_id):
            await seen(lambda: last_pass(workspace.home, HOST).t > 0)
            async with following(workspace, HOST, other.run_id):
                began_t = last_pass(workspace.home, HOST).t
                other.emit(EVENTS, [started(), metric(1)], first_t=FIRST_T)
                await seen(lambda: other.steps() == [1])
                assert last_pass(workspace.home, HOST).t - began_t < 4.0

    run_async(work)


def test_what_a_follower_left_in_the_mirror_is_ingested_by_the_next(
    workspace: FollowedWorkspace, run: FakeRun, home: Path
) -> None:
    other = FakeRun(workspace, home / "box" / "runs" / "other-abc234")

    async def work() -> None:
        async with following(workspace, HOST, run.run_id):
            await seen(lambda: last_pass(workspace.home, HOST).t > 0)
            other.emit(EVENTS, [started(), metric(1), metric(2)], first_t=FIRST_T)
            await seen(lambda: other.mirrored(EVENTS) == other.path(EVENTS).read_bytes())

    run_async(work)
    refresh(workspace)
    assert other.steps() == [1, 2]


def test_a_mirror_made_again_holds_what_the_host_has_compressed(
    workspace: FollowedWorkspace, run: FakeRun
) -> None:
    run.emit(EVENTS, [started(), metric(1)], first_t=FIRST_T)
    refresh(workspace)
    filler = encode(2, FIRST_T, "note", {"text": "x" * 100_000})
    run.write(EVENTS, filler * (2 * REGION_BYTES // len(filler) + 1))
    run.emit(EVENTS, [metric(2)], first_t=FIRST_T + 9)
    whole, compaction = run.path(EVENTS).read_bytes(), Compaction(run.path(EVENTS), 0)
    assert compaction.step() and compaction.step()
    assert run.path(EVENTS).read_bytes() != whole
    refresh(workspace)
    assert run.mirrored(EVENTS) == whole
    shutil.rmtree(workspace.home.mirror)
    with workspace.metrics.writing():
        workspace.metrics.clear()
    refresh(workspace)
    assert run.mirrored(EVENTS) == whole
    assert run.steps() == [1, 2]


def test_a_truncated_log_is_put_aside_and_the_new_one_mirrored(
    workspace: FollowedWorkspace, run: FakeRun
) -> None:
    run.write(LOG, b"one\ntwo\n")
    refresh(workspace)
    os.truncate(run.path(LOG), 0)
    run.write(LOG, b"new\n")
    refresh(workspace)
    assert run.mirrored(LOG) == b"new\n"
    assert run.mirrored(f"{LOG}.1") == b"one\ntwo\n"
    run.path(LOG).write_bytes(b"regrown, and longer than before\n")
    refresh(workspace)
    assert run.mirrored(LOG) == b"regrown, and longer than before\n"
    assert run.mirrored(f"{LOG}.2") == b"new\n"
    log = run_async(lambda: read_log(workspace, run.run_id, cursor="l1.train.1.0"))
    assert log.lines == ["one", "two", "new", "regrown, and longer than before"]


def test_events_that_start_again_stand_once_each(
    workspace: FollowedWorkspace, run: FakeRun
) -> None:
    rows = (started(), metric(1, 3.0), metric(2, 2.0))
    run.emit(EVENTS, rows, first_t=FIRST_T)
    refresh(workspace)
    os.truncate(run.path(EVENTS), 0)
    run.emit(EVENTS, (*rows[:2], metric(2, 1.5)), first_t=FIRST_T)
    run.emit(EVENTS, (metric(3, 1.0),), first_t=FIRST_T + 9)
    refresh(workspace)
    assert run.steps() == [1, 2, 3]
    piece = workspace.metrics.series(run.run_id, "loss")[0]
    assert [value for _, _, value in workspace.metrics.points(piece.sid)] == [3.0, 1.5, 1.0]
    view = load_view(workspace, run.run_id)
    assert view.progress is not None and view.progress.steps_done == 3


def test_a_run_whose_mirror_cannot_be_written_stops_no_other(
    workspace: FollowedWorkspace, run: FakeRun, home: Path
) -> None:
    other = FakeRun(workspace, home / "box" / "runs" / "other-abc234")
    run.mirror.root.parent.mkdir(parents=True)
    run.mirror.root.touch()
    for one in (run, other):
        one.emit(EVENTS, (metric(1),), first_t=FIRST_T)

    async def work() -> None:
        async with following(workspace, HOST):
            await seen(lambda: other.steps() == [1])
            run.mirror.root.unlink()
            await seen(lambda: run.steps() == [1])

    run_async(work)


def test_an_ended_run_is_read_to_its_end_and_closed(
    workspace: FollowedWorkspace, run: FakeRun
) -> None:
    run.write(LOG, b"line\n")
    refresh(workspace)
    run.write("state.json", b"{}")
    run.write("attempts/1/exit.json", b'{"code":0}')
    end_run(run)
    refresh(workspace)
    assert workspace.control.run(run.run_id).closed
    for name in ("state.json", "attempts/1/exit.json", LOG, JOURNAL):
        assert run.mirrored(name) == run.path(name).read_bytes()


def test_a_host_that_is_gone_makes_its_runs_lost_and_says_why(
    workspace: FollowedWorkspace, run: FakeRun, host: PartingHost
) -> None:
    heartbeat(run, t=time.time() - 3600)
    refresh(workspace)
    assert status_of(load_view(workspace, run.run_id)).reason is None
    host.away = True
    refresh(workspace)
    status = status_of(load_view(workspace, run.run_id))
    assert (status.state, status.reason) == ("lost", "HOST_UNREACHABLE: It does not answer.")
    host.away = False
    heartbeat(run, t=time.time(), first=False)
    # A single refresh after a failed one is a short one.
    until(workspace, lambda: status_of(load_view(workspace, run.run_id)).state == "running")
    assert status_of(load_view(workspace, run.run_id)).reason is None


def test_a_wait_outlives_a_lost_link_and_everything_missed_is_read(
    workspace: FollowedWorkspace, run: FakeRun, host: PartingHost
) -> None:
    heartbeat(run, t=time.time())
    run.emit(EVENTS, (metric(1),), first_t=FIRST_T)

    async def work() -> str:
        waiting = asyncio.create_task(
            wait_for_event(workspace, run.run_id, until=["step:3"], timeout_s=120)
        )
        await seen(lambda: run.steps() == [1])
        for step in (2, 3):
            host.away = True
            await seen(lambda: last_pass(workspace.home, HOST).error is not None)
            run.emit(EVENTS, (metric(step),), first_t=FIRST_T)
            host.away = False
            await seen(lambda step=step: step in run.steps())
        return (await waiting).event

    assert run_async(work) == "step:3"
    assert run.steps() == [1, 2, 3]
    assert run.mirrored(EVENTS) == run.path(EVENTS).read_bytes()


@only_multiplexed
def test_ages_are_counted_by_the_hosts_clock(
    workspace: FollowedWorkspace, run: FakeRun, host: PartingHost
) -> None:
    host.ahead_s = 3600.0
    begun = time.time()
    heartbeat(run, t=begun + 3600 - 20)
    refresh(workspace)
    view = load_view(workspace, run.run_id)
    slack_s = 1 + time.time() - begun  # the clocks are compared as precisely as the read is fast
    assert abs(last_pass(workspace.home, HOST).skew_s - 3600) < slack_s
    age_s = view.now - (view.record.heartbeat_t or 0)
    assert 20 - slack_s < age_s < 20 + 2 * slack_s


@only_multiplexed
@pytest.mark.parametrize("interpreter", [None, "/bin/false", "/nowhere/python3"])
def test_without_a_python_that_works_the_files_are_asked_for(
    workspace: FollowedWorkspace, run: FakeRun, host: PartingHost, interpreter: str | None
) -> None:
    host.interpreter = interpreter
    run.emit(EVENTS, (metric(1),), first_t=FIRST_T)
    until(workspace, lambda: run.steps() == [1])
    assert host.streams <= 1


@only_multiplexed
@pytest.mark.parametrize(
    "name", ["../evil", "attempts/../../evil", "/tmp/evil", "attempts/1/../evil", "following.json"]
)
def test_a_box_names_nothing_outside_of_what_is_followed(
    workspace: FollowedWorkspace, run: FakeRun, host: PartingHost, home: Path, name: str
) -> None:
    host.command = [sys.executable, "-c", HOSTILE_FOLLOWER, name]
    refresh(workspace)
    assert workspace.metrics.refusals.quarantined() == {(run.run_id, 1)}
    assert holding(home, b"evil") == []


@only_multiplexed
def test_one_channel_serves_all_runs_all_the_time(
    workspace: FollowedWorkspace, run: FakeRun, host: PartingHost, home: Path
) -> None:
    runs = [run, *(FakeRun(workspace, home / "box/runs" / f"r{n}-abc234") for n in range(9))]

    async def work() -> None:
        async with following(workspace, HOST):
            for step in (1, 2, 3):
                for one in runs:
                    one.emit(EVENTS, (metric(step),), first_t=FIRST_T + step)
                expected = list(range(1, step + 1))
                await seen(partial(all_have, runs, expected))

    run_async(work)
    assert host.streams == 1


def test_logs_full_of_anything_are_mirrored_byte_for_byte_over_lost_links(
    workspace: FollowedWorkspace, host: PartingHost, home: Path
) -> None:
    print(f"seed {SEED}")
    chosen = random.Random(SEED)
    runs = [FakeRun(workspace, home / "box" / "runs" / f"r{n}-abc234") for n in range(5)]
    counts = {run.run_id: 0 for run in runs}

    def happen() -> None:
        for run in runs:
            run.write(
                LOG, chosen.choice((b"\r 50%", b"\xff\xfe", "\u00e9".encode()[:1], b"\n")) * 99
            )
            counts[run.run_id] += 1
            run.emit(EVENTS, (metric(counts[run.run_id]),), first_t=FIRST_T + counts[run.run_id])
        host.away = chosen.random() < 0.4

    async def work() -> None:
        async with following(workspace, HOST):
            for _ in range(30):
                happen()
                await asyncio.sleep(chosen.uniform(0, 0.1))
            host.away = False
            await seen(
                lambda: (
                    all(run.mirrored(LOG) == run.path(LOG).read_bytes() for run in runs)
                    and all_have(runs, list(range(1, 31)))
                )
            )

    run_async(work)
    for run in runs:
        assert run.mirrored(LOG) == run.path(LOG).read_bytes()
        assert run.steps() == list(range(1, 31))
        assert not list(run.mirror.root.rglob("*.1"))
