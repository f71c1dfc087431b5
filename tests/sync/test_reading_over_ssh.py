"""What reads a host over SSH leaves it as it was, whether our runtime is there or not."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from support.backends.ssh_hosts import Sshd
from support.core.journal_records import attempt_starting, kept, metric, started, state
from support.runs.running_run import run_async, small_spec
from support.session.tiers import at_length
from support.sync.followed_run import FakeRun

from trainmaster.backends.hosts.ssh import CARRIED, SshHost
from trainmaster.home.paths import Home
from trainmaster.machines.check_host import check_host
from trainmaster.runs.lists.list_checkpoints import list_checkpoints
from trainmaster.runs.log.logs import read_log
from trainmaster.runs.planning.plan_run import plan_run
from trainmaster.runs.status.status import get_status
from trainmaster.sync.workspace import Workspace

pytestmark = pytest.mark.slow

HOST, RUN = "box", "small-aaaaaa"
Read = Callable[[Workspace], Awaitable[object]]


@pytest.fixture
def known(workspace: Workspace, sshd: Sshd) -> Workspace:
    """A home that knows the host, and a run there."""
    workspace.control.put_host(sshd.record(HOST), time.time())
    run = FakeRun(workspace, sshd.home / "trainmaster" / "runs" / RUN, HOST)
    journal = (attempt_starting(1), ("attempt_running", {"attempt": 1}), state("running"))
    run.emit("supervisor.jsonl", journal, first_t=time.time())
    run.emit("attempts/1/events.jsonl", [started(), metric(1), *kept(20, 2.0)], first_t=time.time())
    run.write("attempts/1/train.log", b"step 1: loss 2.5\n")
    return workspace


@pytest.mark.parametrize("is_placed", [True, *at_length(False)])
def test_reading_leaves_a_host_as_it_was(
    known: Workspace, sshd: Sshd, tmp_path: Path, is_placed: bool
) -> None:
    spec = small_spec(
        tmp_path,
        host=HOST,
        environment=f"{{python: {sys.executable}}}",
        checkpoint=f'{{every: 20, mirror: "host:{sshd.home}/second/place"}}',
    )

    async def read() -> None:
        if is_placed:
            await SshHost(sshd.record(HOST), known.home).place_runtime()
        before = dict(tree(sshd.home))
        planned = await plan_run(known, spec)
        assert planned.estimates
        checked = await check_host(known, HOST)
        assert {row.name for row in checked.checks} >= {"python", "root", "torch"}
        assert (await get_status(known, RUN)).step == 1
        assert (await read_log(known, RUN)).lines == ["step 1: loss 2.5"]
        assert (await list_checkpoints(known, RUN)).resume_from == 20
        assert dict(tree(sshd.home)) == before
        await known.disconnect()

    run_async(read)


def test_a_runtime_is_sent_along_until_somebody_who_acts_has_placed_it(
    home: Path, sshd: Sshd
) -> None:
    host = SshHost(sshd.record(HOST), Home(home))

    async def facts(folder: str) -> str:
        command = [await host.python(), "-m", "trainer_runtime", "facts", str(sshd.home)]
        done = await host.run(command, folder=folder, timeout_s=60.0)
        assert done.code == 0, done.errors
        return done.output

    async def work() -> None:
        assert await host.runtime() == CARRIED
        carried = await facts(CARRIED)
        placed = await host.place_runtime()
        assert await host.runtime() == placed
        assert f'"root": "{sshd.home}"' in carried and f'"root": "{sshd.home}"' in await facts(
            placed
        )
        await host.disconnect()

    run_async(work)


def test_nothing_but_commands_of_the_runtime_goes_with_it(home: Path, sshd: Sshd) -> None:
    host = SshHost(sshd.record(HOST), Home(home))

    async def work() -> None:
        with pytest.raises(ValueError, match="not a command of the runtime"):
            await host.run(["/bin/true"], folder=CARRIED, timeout_s=5.0)
        await host.disconnect()

    run_async(work)


def tree(root: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Every file and folder below `root`, with size and time of change."""
    for path in [root, *root.rglob("*")]:
        status = path.lstat()
        yield (
            os.path.relpath(path, root),
            (0 if path.is_dir() else status.st_size, status.st_mtime_ns),
        )
