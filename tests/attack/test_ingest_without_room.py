"""Ingesting on a disk that has its margin left, or nothing: nothing is lost."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from support.attack.small_disk import free_bytes, small_disk
from support.core.journal_records import evaluation, lines, metric, started
from support.runs.running_run import run_async
from support.sync.followed_run import HOST, FakeRun, FollowedWorkspace, heartbeat

from trainmaster.backends.hosts import LocalHost
from trainmaster.errors.errors import StorageError
from trainmaster.home.paths import Home
from trainmaster.runs.metrics.query_metrics import query_metrics
from trainmaster.runs.status.status import get_status
from trainmaster.store.database import out_of_room
from trainmaster.store.reserve import margin_bytes
from trainmaster.sync.follow import following
from trainmaster.sync.ingest import Ingest, MirrorGrowth
from trainmaster.sync.kept_passes import KeptPasses
from trainmaster.sync.passes import Passes
from trainmaster.sync.rebuild import rebuild
from trainmaster.sync.rebuild_state import incomplete

pytestmark = pytest.mark.attack

EVENTS = "attempts/1/events.jsonl"
STEPS = 20_000


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", getattr(request, "param", 64)) as folder:
        yield folder


@pytest.fixture
def workspace(disk: Path, tmp_path: Path) -> Iterator[FollowedWorkspace]:
    home = Home(disk / "home")
    home.root.mkdir(mode=0o700)
    opened = FollowedWorkspace(home, LocalHost(HOST, tmp_path / "box"))
    yield opened
    opened.close()


@pytest.fixture
def run(workspace: FollowedWorkspace, tmp_path: Path) -> FakeRun:
    placed = FakeRun(workspace, tmp_path / "box" / "runs" / "small-abc234")
    heartbeat(placed, t=10.0)
    placed.write(EVENTS, printed(0, 1))
    run_async(lambda: get_status(workspace, placed.run_id))
    assert placed.steps() == [1]
    return placed


def printed(begin: int, end: int) -> bytes:
    """The lines of the steps after `begin` up to `end`."""
    rows = (started(0, STEPS), *(metric(step, 1.0 / step, lr=0.1) for step in range(1, end + 1)))
    return b"".join(lines(rows)[begin + (begin > 0) :])


def copied(run: FakeRun) -> None:
    """The other steps, which were copied to the mirror and are not ingested."""
    run.write(EVENTS, printed(1, STEPS))
    run.mirror.append(EVENTS, printed(1, STEPS))


def leave(disk: Path, size: int) -> Path:
    filler = disk / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free_bytes(disk) - size)
    return filler


def test_metrics_that_have_no_room_are_read_later_and_answers_say_so(
    workspace: FollowedWorkspace, run: FakeRun, disk: Path
) -> None:
    copied(run)
    filler = leave(disk, margin_bytes(disk))
    status = run_async(lambda: get_status(workspace, run.run_id))
    assert "Not brought up to date" in str(status.incomplete)
    assert "only its margin of free space left" in str(status.incomplete)
    answer = run_async(lambda: query_metrics(workspace, [run.run_id], keys=["loss"]))
    assert "Not brought up to date" in str(answer.incomplete)
    assert run.steps() == [1]
    filler.unlink()
    workspace.kept_passes = KeptPasses()  # which have not copied those steps
    status = run_async(lambda: get_status(workspace, run.run_id))
    assert status.incomplete is None and run.steps() == list(range(1, STEPS + 1))


def test_a_follower_continues_without_room_and_ingests_once_there_is_some(
    workspace: FollowedWorkspace, run: FakeRun, disk: Path
) -> None:
    async def follows() -> None:
        passes = Passes(workspace, HOST)
        async with workspace.backend(HOST).follower() as follower:
            await passes.make(follower)
            copied(run)
            filler = leave(disk, margin_bytes(disk))
            passes = Passes(workspace, HOST)
            await passes.make(follower)
            assert run.steps() == [1] and not passes.is_whole
            assert free_bytes(disk) >= margin_bytes(disk) - (1 << 20)
            filler.unlink()
            await passes.make(follower)

    run_async(follows)
    assert run.steps() == list(range(1, STEPS + 1))


def test_a_disk_that_fills_while_ingesting_leaves_the_offset_where_it_was(
    workspace: FollowedWorkspace, run: FakeRun, disk: Path
) -> None:
    growth = MirrorGrowth(run.run_id, 1, run.mirror, None)
    offset = workspace.metrics.offset(run.run_id, 1, EVENTS)
    copied(run)
    filler = leave(disk, 64 << 10)
    with pytest.raises(sqlite3.OperationalError) as caught:
        Ingest(workspace.metrics).take_in([growth])
    assert caught.value.sqlite_errorcode == sqlite3.SQLITE_FULL
    assert workspace.metrics.offset(run.run_id, 1, EVENTS) == offset and run.steps() == [1]
    filler.unlink()
    Ingest(workspace.metrics).take_in([growth])
    assert run.steps() == list(range(1, STEPS + 1))


def test_a_rebuild_without_room_is_refused_and_continues_later(
    workspace: FollowedWorkspace, run: FakeRun, disk: Path
) -> None:
    with workspace.metrics.writing():
        workspace.metrics.expect_replay()
        workspace.metrics.clear()
    filler = leave(disk, margin_bytes(disk))
    with pytest.raises(StorageError) as refused:
        rebuild(workspace)
    assert refused.value.code == "DISK_FULL" and out_of_room(workspace.home.metrics_db) is not None
    filler.unlink()
    rebuild(workspace)
    assert run.steps() == [1] and not workspace.metrics.replay_due


@pytest.mark.parametrize("disk", [40], indirect=True)
def test_a_follower_outlives_a_transaction_that_fills_the_disk(
    workspace: FollowedWorkspace, disk: Path, tmp_path: Path
) -> None:
    """Of four runs at once, whose events take more than the margin of a small disk."""
    evaluated = b"".join(lines([started(0, STEPS), *(evaluation(n, 1.0) for n in range(1, 8_001))]))
    runs = [FakeRun(workspace, tmp_path / "box" / "runs" / f"run{n}-abc234") for n in range(4)]
    for run in runs:
        heartbeat(run, t=10.0)
        run.write(EVENTS, evaluated)
        run.mirror.append(EVENTS, evaluated)
    filler = leave(disk, margin_bytes(disk) + (3 << 19))

    def seen() -> list[int]:
        pieces = [workspace.metrics.series(run.run_id, "val_loss") for run in runs]
        return [sum(len(workspace.metrics.points(one.sid)) for one in piece) for piece in pieces]

    async def follows() -> None:
        async with following(workspace, HOST) as follower, asyncio.timeout(60.0):
            while workspace.unwritable is None:
                follower.check()
                await asyncio.sleep(0.01)
            assert free_bytes(disk) < margin_bytes(disk) // 2 and max(seen()) < 8_000
            assert "Not brought up to date" in str(incomplete(workspace))
            filler.unlink()
            while seen() != [8_000] * 4:
                follower.check()
                await asyncio.sleep(0.05)

    run_async(follows)
    assert "Not brought" not in str(incomplete(workspace))


@contextmanager
def _filled(disk: Path) -> Iterator[None]:
    filler = leave(disk, 0)
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def _read_only(disk: Path) -> Iterator[None]:
    """By a mount above, as files are open for writing below."""
    subprocess.run(["mount", "--bind", disk, disk], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", disk], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.parametrize("taking_no_more", [_filled, _read_only])
def test_a_home_that_takes_no_more_once_it_is_open_has_its_metrics_read(
    workspace: FollowedWorkspace,
    run: FakeRun,
    disk: Path,
    taking_no_more: Callable[[Path], AbstractContextManager[None]],
) -> None:
    workspace.reopen_metrics()
    with taking_no_more(disk):
        assert run.steps() == [1]
        status = run_async(lambda: get_status(workspace, run.run_id))
        assert status.step == 1 and "Not brought up to date" in str(status.incomplete)
        workspace.reopen_metrics()
    copied(run)
    status = run_async(lambda: get_status(workspace, run.run_id))
    assert status.incomplete is None and status.step == STEPS
