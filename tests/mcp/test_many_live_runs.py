"""A server with many live runs takes no more threads and descriptors than one with a few."""

from __future__ import annotations

import os
import time
from pathlib import Path

import anyio
import pytest
from support.core.journal_records import metric, started
from support.mcp.mcp_client import answer_of, connected_over_stdio
from support.sync.followed_run import FakeRun, heartbeat

from trainmaster.sync.workspace import Workspace

pytestmark = pytest.mark.slow

_RUNS, _USERS = 50, 4
_MOST_THREADS, _MOST_DESCRIPTORS = 12, 64


def children() -> set[int]:
    threads = Path("/proc/self/task").iterdir()
    found = [(thread / "children").read_text().split() for thread in threads]
    return {int(pid) for pids in found for pid in pids}


def test_threads_and_descriptors_of_a_server_do_not_grow_with_live_runs(
    workspace: Workspace, home: Path
) -> None:
    for number in range(_RUNS):
        folder = workspace.home.local_root / "runs" / f"run-{number}-abc234"
        run = FakeRun(workspace, folder, "local")
        heartbeat(run, t=time.time())
        steps = [started(), *(metric(step) for step in range(1, 5))]
        run.emit("attempts/1/events.jsonl", steps, first_t=time.time())

    async def work() -> None:
        before = children()
        environment = {"TRAINMASTER_HOME": str(home)}
        async with connected_over_stdio(environment, "2026-07-28", "--read-only") as client:
            (server,) = children() - before

            async def use() -> None:
                for _ in range(3):
                    found = await answer_of(client, "overview")
                    assert found["running"]  # the first of them: answers are short
                    await answer_of(client, "list_runs", limit=_RUNS)

            async with anyio.create_task_group() as users:
                for _ in range(_USERS):
                    users.start_soon(use)
            assert len(os.listdir(f"/proc/{server}/task")) <= _MOST_THREADS
            assert len(os.listdir(f"/proc/{server}/fd")) <= _MOST_DESCRIPTORS

    anyio.run(work)
