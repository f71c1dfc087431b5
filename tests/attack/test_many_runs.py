"""Many runs of which a host reports whatever it likes, and hosts that answer when they like: other
runs are listed as they are, and calls come between."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attack.cases import attack_count, attack_random
from support.core.journal_records import EventBody, attempt_starting, lines, metric, started, state
from support.runs.running_run import run_async
from support.sync.followed_run import HOST, FakeRun, FollowedWorkspace, heartbeat
from support.sync.mutations import mutated

from trainmaster.backends.hosts import LocalHost
from trainmaster.home.paths import Home
from trainmaster.runs.lists.list_runs import list_runs
from trainmaster.runs.overview.overview import overview
from trainmaster.runs.upkeep.maintain import due_runs, maintain

pytestmark = pytest.mark.attack

EVENTS, JOURNAL = "attempts/1/events.jsonl", "supervisor.jsonl"
_HEALTHY = "run-healthy-abc234"
_BODIES: tuple[EventBody, ...] = (
    attempt_starting(1),
    ("attempt_running", {"attempt": 1}),
    state("running"),
    ("sample", {"values": {"cpu_util": 97.5}}),
)
_MOST_BYTES = 3 << 20


class LateHost(LocalHost):
    """Each of its answers comes some turns of the loop later, some never."""

    never: frozenset[str] = frozenset()
    turns: random.Random | None = None

    async def size(self, path: str) -> int | None:
        for _ in range(self.turns.randrange(4) if self.turns else 0):
            await asyncio.sleep(0)
        if any(name in path for name in self.never):
            await asyncio.Event().wait()
        return await super().size(path)


@pytest.fixture
def host(home: Path) -> LateHost:
    return LateHost(HOST, home / "box")


@pytest.fixture
def workspace(home: Path, host: LateHost) -> Iterator[FollowedWorkspace]:
    opened = FollowedWorkspace(Home(home), host, multiplexed=False)
    yield opened
    opened.close()


def garbage(run: FakeRun, chosen: random.Random) -> None:
    """What a run's files may hold: mutated lines, bytes, whole files of megabytes."""
    kind = chosen.randrange(5)
    journal = [json.loads(line) for line in lines(_BODIES, first_t=time.time())]
    run.write(JOURNAL, mutated(journal, chosen))
    events = [started(), *(metric(step) for step in range(1, 30))]
    run.write(EVENTS, mutated([json.loads(line) for line in lines(events)], chosen))
    if kind == 0:
        run.write(JOURNAL, chosen.randbytes(chosen.randrange(1 << 16)))
    elif kind == 1:
        run.write("state.json", b"[" * chosen.randrange(_MOST_BYTES))
    elif kind == 2:
        run.write(EVENTS, b"{" + b"x" * chosen.randrange(_MOST_BYTES) + b"\n")
    elif kind == 3:
        for name in range(chosen.randrange(50)):
            run.write(f"attempts/{chosen.randrange(10**9)}/{name}", b"x")
    else:
        run.write("state.json", json.dumps({"state": "x" * 100_000, "v": 10**400}).encode())


def healthy(workspace: FollowedWorkspace, home: Path) -> None:
    run = FakeRun(workspace, home / "box" / "runs" / _HEALTHY)
    heartbeat(run, t=time.time())
    run.emit(EVENTS, [started(), *(metric(step) for step in range(1, 40))], first_t=time.time())


def test_garbage_of_many_runs_of_a_host_leaves_the_others_line_as_it_is(
    workspace: FollowedWorkspace, home: Path, host: LateHost
) -> None:
    chosen, count = attack_random("garbage of many runs"), attack_count(30)
    for number in range(count):
        garbage(FakeRun(workspace, home / "box" / "runs" / f"run-{number}-abc234"), chosen)
    healthy(workspace, home)

    async def work() -> None:
        host.turns = chosen
        for _ in range(2):  # the second continues from what the first has kept
            found = await list_runs(workspace, limit=count + 1, within_s=60.0)
            named = {row.run_id for row in found.runs} | {row.subject for row in found.failed or ()}
            assert len(named) >= count + 1
            (row,) = [row for row in found.runs if row.run_id == _HEALTHY]
            assert (row.state, row.step, row.quarantined) == ("running", 39, None)
            done = await maintain(workspace, due_runs(workspace))
            assert done.keys() >= {_HEALTHY}
        answer = await overview(workspace, within_s=60.0)
        (line,) = [line for line in answer.running if line.startswith("run-healthy")]
        assert line.startswith("run-healthy 39/")

    run_async(work)


def test_runs_whose_files_are_never_answered_for_keep_no_list_waiting(
    workspace: FollowedWorkspace, home: Path, host: LateHost
) -> None:
    chosen, count = attack_random("hosts that answer late"), attack_count(10)
    names = [f"run-{number}-abc234" for number in range(count)]
    for name in names:
        heartbeat(FakeRun(workspace, home / "box" / "runs" / name), t=time.time())
    healthy(workspace, home)

    async def work() -> None:
        await list_runs(workspace, within_s=60.0)
        host.never = frozenset(chosen.sample(names, k=max(1, count // 2)))
        for _ in range(20):
            answer = await overview(workspace, within_s=0.01)
            assert any(f"{HOST}: TIMEOUT" in line for line in answer.attention)
            assert any(line.startswith("run-healthy 39/") for line in answer.running)
        assert len([one for one in asyncio.all_tasks() if not one.done()]) < 12

    run_async(work)
