"""What a server does for many runs leaves room for the calls of others, and is forgotten."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from support.core.journal_records import metric, started
from support.runs.running_run import run_async
from support.sync.followed_run import HOST, FakeRun, FollowedWorkspace, end_run, heartbeat

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.backends.hosts import LocalHost
from trainmaster.home.paths import Home
from trainmaster.runs.lists.list_runs import list_runs
from trainmaster.runs.overview.overview import overview
from trainmaster.runs.upkeep.maintain import due_runs, maintain
from trainmaster.store.metrics_store import MetricsStore
from trainmaster.store.run import Run
from trainmaster.sync.follow import catch_up
from trainmaster.sync.ingest import Ingest
from trainmaster.sync.last_pass import last_pass
from trainmaster.sync.passes import Passes

EVENTS = "attempts/1/events.jsonl"
_RUNS = 40
_IN_A_LIST = 250
_LONGEST_S = 60.0


class SlowHost(LocalHost):
    """A host on this machine that gives no answer until `answers` is set."""

    def __init__(self, root: Path) -> None:
        super().__init__(HOST, root)
        self.answers = asyncio.Event()
        self.asked = 0

    async def size(self, path: str) -> int | None:
        if path.endswith("supervisor.jsonl"):
            self.asked += 1
        await self.answers.wait()
        return await super().size(path)


@pytest.fixture
def host(home: Path) -> SlowHost:
    return SlowHost(home / "box")


@pytest.fixture
def workspace(home: Path, host: SlowHost) -> Iterator[FollowedWorkspace]:
    opened = FollowedWorkspace(Home(home), host, multiplexed=False)
    yield opened
    opened.close()


def begin(workspace: FollowedWorkspace, home: Path, count: int) -> list[FakeRun]:
    """Runs under way, each with some steps."""
    runs = [FakeRun(workspace, home / "box" / "runs" / f"run-{n}-abc234") for n in range(count)]
    for run in runs:
        heartbeat(run, t=time.time())
        run.emit(EVENTS, [started(), *(metric(step) for step in range(1, 5))], first_t=time.time())
    return runs


async def calls_between(work: Callable[[], Awaitable[object]]) -> int:
    """How often another task had its turn meanwhile."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await work()
    task.cancel()
    return turns


def test_calls_come_between_the_runs_of_a_pass_and_of_a_round(
    workspace: FollowedWorkspace, home: Path, host: SlowHost
) -> None:
    begin(workspace, home, _RUNS)
    host.answers.set()

    async def work() -> None:
        # With 4 copied and 4 ingested at a time.
        assert await calls_between(lambda: catch_up(workspace, HOST)) >= 2 * _RUNS // 4
        runs = due_runs(workspace)
        assert await calls_between(lambda: maintain(workspace, runs)) >= 2 * _RUNS

    run_async(work)


def test_calls_come_between_the_portions_of_a_long_file(
    workspace: FollowedWorkspace, home: Path, host: SlowHost
) -> None:
    (run,) = begin(workspace, home, 1)
    filler = "x" * 10_000
    steps = [metric(step) for step in range(5, 4000)]
    run.emit(EVENTS, [(kind, {**body, "note": filler}) for kind, body in steps], first_t=2.0)
    host.answers.set()
    megabytes = run.path(EVENTS).stat().st_size >> 20
    assert megabytes >= 36

    async def work() -> None:
        await catch_up(workspace, HOST)
        workspace.metrics.clear(run.run_id)  # all of it is read again, in a pass alone
        assert await calls_between(lambda: catch_up(workspace, HOST)) > megabytes // 3

    run_async(work)
    assert run.steps() == list(range(1, 4000))


def test_a_host_that_gives_no_answer_holds_up_no_list_and_is_read_once(
    workspace: FollowedWorkspace, home: Path, host: SlowHost
) -> None:
    begin(workspace, home, 1)

    async def work() -> None:
        for _ in range(3):
            answer = await overview(workspace, within_s=0.01)
            assert [line for line in answer.attention if f"not read: {HOST}: TIMEOUT" in line]
        assert host.asked == 1  # by the first; the others wait for the same
        listed = await list_runs(workspace, within_s=0.01)
        assert [row.subject for row in listed.failed or ()] == [HOST]
        assert [row.step for row in listed.runs] == [0]
        assert host.asked == 1
        host.answers.set()
        async with asyncio.timeout(_LONGEST_S):
            while last_pass(workspace.home, HOST).t == 0.0:  # nobody waits for it any more
                await asyncio.sleep(0.01)
        listed = await list_runs(workspace, within_s=_LONGEST_S)
        assert [row.step for row in listed.runs] == [4]
        assert not listed.failed

    run_async(work)


def test_users_who_ask_at_once_get_one_answer_until_something_is_recorded(
    workspace: FollowedWorkspace, home: Path, host: SlowHost
) -> None:
    host.answers.set()
    begin(workspace, home, 2)

    async def work() -> None:
        await overview(workspace)
        first, second = await asyncio.gather(overview(workspace), overview(workspace))
        assert first is second
        assert len(first.running) == 2
        later = await overview(workspace, cursor=first.cursor)
        assert later is not first
        FakeRun(workspace, home / "box" / "runs" / "added-abc234")
        assert len((await overview(workspace)).running) == 3

    run_async(work)


def test_what_ended_is_listed_however_many_newer_runs_are_open(
    workspace: FollowedWorkspace, home: Path, host: SlowHost
) -> None:
    host.answers.set()
    (ended,) = begin(workspace, home, 1)

    async def work() -> None:
        end_run(ended)
        await catch_up(workspace, HOST)
        await catch_up(workspace, HOST)
        assert workspace.control.run(ended.run_id).closed
        document = workspace.control.run(ended.run_id).document
        for number in range(_IN_A_LIST):
            name = f"newer-{number}"
            run = Run(f"{name}-abc234", name, time.time(), HOST, "", document, {}, {})
            desired = Desired(DesiredState.RUNNING, 1)
            workspace.control.add_run(run, desired, "process", str(home / name), None)
        answer = await overview(workspace, within_s=0.0)
        assert [line.split()[0] for line in answer.ended] == ["run-0"]
        assert len(answer.running) == _IN_A_LIST

    run_async(work)


def test_a_follower_forgets_runs_that_have_ended(
    workspace: FollowedWorkspace, home: Path, host: SlowHost
) -> None:
    """A board or a `wait` follows for weeks."""
    host.answers.set()
    passes, runs = Passes(workspace, HOST), begin(workspace, home, _RUNS)

    async def make() -> None:
        async with workspace.backend(HOST).follower() as follower:
            for _ in range(4):
                await passes.make(follower)

    def known() -> int:
        return sum(len(cached) for cached in caches(passes, workspace.metrics))

    run_async(make)
    before = known()
    for run in runs[1:]:
        end_run(run)
    run_async(make)
    assert workspace.control.open_runs(HOST) == [(runs[0].run_id, 1, 1)]
    run_async(make)
    assert known() <= 2 * before // _RUNS


def caches(passes: Passes, metrics: MetricsStore) -> Iterator[dict[object, object]]:
    """All that these keep of runs."""
    for owner in (passes, metrics, *(v for v in vars(passes).values() if isinstance(v, Ingest))):
        yield from (cached for cached in vars(owner).values() if isinstance(cached, dict))
