"""Following through a real sshd whose connections are cut at random."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.backends.ssh_hosts import Sshd
from support.core.journal_records import FIRST_T, metric
from support.runs.running_run import run_async
from support.sync.followed_run import HOST, FakeRun, FollowedWorkspace

from trainmaster.backends.hosts.ssh import SshHost
from trainmaster.home.paths import Home
from trainmaster.sync.follow import following
from trainmaster.sync.last_pass import last_pass

pytestmark = pytest.mark.slow

CUTS = int(os.environ.get("TRAINMASTER_FAULT_CUTS", "8"))
SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))
EVENTS, LOG = "attempts/1/events.jsonl", "attempts/1/train.log"
_PIECES = (b"\r 50%|#####", b"\xff\xfe", b"\xc3", b"\xa9\n", b"\n", b"loss 1.5\r\n", b"\x1b[2K")


async def seen(met: Callable[[], bool], bound_s: float = 60.0) -> None:
    deadline = time.monotonic() + bound_s
    while not met():
        assert time.monotonic() < deadline, f"not within {bound_s:.0f} s"
        await asyncio.sleep(0.05)


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    with Sshd(rc="echo Welcome to the host\n") as box:
        yield box


@pytest.fixture
def workspace(home: Path, sshd: Sshd) -> Iterator[FollowedWorkspace]:
    host = SshHost(sshd.record(HOST), Home(home))
    opened = FollowedWorkspace(Home(home), host)
    yield opened
    opened.close()


@pytest.fixture
def runs(workspace: FollowedWorkspace, sshd: Sshd) -> list[FakeRun]:
    folder = sshd.home / "trainmaster" / "runs"
    return [FakeRun(workspace, folder / f"r{number}-abc234") for number in range(5)]


def test_cut_connections_lose_and_double_nothing(
    workspace: FollowedWorkspace, runs: list[FakeRun], sshd: Sshd
) -> None:
    print(f"seed {SEED}")
    chosen = random.Random(SEED)
    emitted = 0

    def emit() -> None:
        nonlocal emitted
        emitted += 1
        for run in runs:
            run.write(LOG, b"".join(chosen.choices(_PIECES, k=200)))
            run.emit(EVENTS, (metric(emitted),), first_t=FIRST_T + emitted)

    def is_whole() -> bool:
        return all(
            run.mirror.size(name) == run.path(name).stat().st_size
            for run in runs
            for name in (LOG, EVENTS)
        ) and all(len(run.steps()) >= emitted for run in runs)

    async def work() -> None:
        async with following(workspace, HOST) as follower:
            for _ in range(CUTS):
                until = time.monotonic() + chosen.uniform(0.0, 0.8)
                while time.monotonic() < until:
                    emit()
                    await asyncio.sleep(0.02)
                await asyncio.to_thread(sshd.drop_connections)
            # After so many failures the follower itself waits for up to half a minute.
            await seen(is_whole, 120.0)
            follower.check()
        await workspace.disconnect()
        await workspace.backend(HOST).disconnect()

    run_async(work)
    assert emitted > CUTS
    for run in runs:
        for name in (LOG, EVENTS):
            assert run.mirrored(name) == run.path(name).read_bytes()
        assert run.steps() == list(range(1, emitted + 1))
        assert not list(run.mirror.root.rglob("*.1"))


def test_followers_on_the_box_end_with_their_connections(
    workspace: FollowedWorkspace, runs: list[FakeRun], sshd: Sshd
) -> None:
    async def work() -> None:
        async with following(workspace, HOST):
            for _ in range(3):
                passed = time.time()
                while last_pass(workspace.home, HOST).t < passed or not sshd.followers:
                    await asyncio.sleep(0.02)
                await asyncio.to_thread(sshd.drop_connections)
        await workspace.backend(HOST).disconnect()
        await seen(lambda: not sshd.followers, 120.0)  # one that hangs ends itself in a minute

    runs[0].write(LOG, b"line\n")
    run_async(work)


def test_a_follower_brings_a_runtime_that_was_removed_and_leaves_none(
    home: Path, sshd: Sshd
) -> None:
    host = SshHost(sshd.record(HOST), Home(home))
    workspace = FollowedWorkspace(Home(home), host)
    run = FakeRun(workspace, sshd.home / "trainmaster" / "runs" / "small-abc234")
    run.write(LOG, b"line\n")

    async def work() -> None:
        placed = Path(await host.place_runtime())
        shutil.rmtree(placed)
        async with following(workspace, HOST):
            await seen(lambda: bool(sshd.followers and run.mirrored(LOG)))
        assert not placed.exists()
        assert await host.place_runtime() == str(placed) and placed.exists()
        await host.disconnect()

    run_async(work)
    workspace.close()


def test_files_are_asked_for_one_by_one_where_nothing_can_be_run_for_it(
    home: Path, sshd: Sshd
) -> None:
    host = SshHost(sshd.record(HOST), Home(home))
    polling = FollowedWorkspace(Home(home), host, multiplexed=False)
    run = FakeRun(polling, sshd.home / "trainmaster" / "runs" / "small-abc234")

    async def work() -> None:
        async with following(polling, HOST):
            for step in (1, 2, 3):
                run.write(LOG, b"\xff\r\n" * 1000)
                run.emit(EVENTS, (metric(step),), first_t=FIRST_T + step)
                await seen(lambda step=step: run.steps() == list(range(1, step + 1)))
                await asyncio.to_thread(sshd.drop_connections)
            await seen(lambda: run.mirror.size(LOG) >= run.path(LOG).stat().st_size)
        await host.disconnect()

    run_async(work)
    assert run.mirrored(LOG) == run.path(LOG).read_bytes()
    polling.close()
