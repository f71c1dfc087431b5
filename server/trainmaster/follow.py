"""Bytes from the box into the mirror, and on into the database. One follower per host.

A follower is whoever holds the host's lock; kill -9 frees it. It takes care of all open runs of the
host. Everybody else reads the database.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from trainer_runtime.core.durable import try_lock
from trainer_runtime.core.journal import Record
from trainmaster.errors import HostError, StorageError
from trainmaster.ingest import ingest_placement
from trainmaster.paths import Home
from trainmaster.run import Run
from trainmaster.workspace import Workspace

POLL_S = 0.25
_CATCH_UP_S = 2.0
_LOCK_WAIT_S = 30.0


@asynccontextmanager
async def following(workspace: Workspace, host: str) -> AsyncIterator[asyncio.Task[None]]:
    """Inside, the host is followed: by this process, or by whichever holds the lock.

    The task that is given only ends by an error, which whoever waits should look for.
    """
    task = asyncio.create_task(_follow(workspace, host))
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def catch_up(workspace: Workspace, host: str) -> None:
    """See to it that the database is at most as old as this call; bounded, never an error.

    Where another process follows the host, its next pass is waited for.
    """
    asked, deadline = time.time(), time.monotonic() + _CATCH_UP_S
    while time.monotonic() < deadline:
        lock = try_lock(workspace.home.follower_lock(host))
        if lock is not None:
            try:
                await follow_pass(workspace, host)
            finally:
                os.close(lock)
            return
        if _last_pass(workspace.home, host) >= asked:
            return
        await asyncio.sleep(0.02)


async def follow_pass(workspace: Workspace, host: str) -> None:
    """Copy and take in what is new of all open runs of a host. The caller holds its lock."""
    started = time.time()
    for run in workspace.control.runs(only_open=True):
        if run.host == host and workspace.control.is_placed(run):
            # Told by the run's own heartbeat age; a mirror that can't be written may be again.
            with suppress(HostError, OSError):
                await _follow_run(workspace, run)
    path = workspace.home.follower_pass(host)
    path.touch()
    os.utime(path, (started, started))


@asynccontextmanager
async def follower_lock(home: Home, hosts: Sequence[str]) -> AsyncIterator[None]:
    """Hold the locks of several hosts, so that nobody writes to their mirrors or points.

    Raises:
        StorageError: `HOME_BUSY` where another process holds one and doesn't let go.
    """
    locks = []
    try:
        for host in hosts:
            locks.append(await _wait_for_lock(home, host))
        yield
    finally:
        for lock in locks:
            os.close(lock)


async def _wait_for_lock(home: Home, host: str) -> int:
    deadline = time.monotonic() + _LOCK_WAIT_S
    while (lock := try_lock(home.follower_lock(host))) is None:
        if time.monotonic() > deadline:
            raise StorageError(
                "HOME_BUSY",
                f"Another process follows {host} all the while.",
                "End the `trainmaster wait`, `logs -f` or MCP server that follows it, then retry.",
                retryable=True,
            )
        await asyncio.sleep(0.05)
    return lock


async def _follow(workspace: Workspace, host: str) -> None:
    while True:
        lock = try_lock(workspace.home.follower_lock(host))
        if lock is None:
            await asyncio.sleep(POLL_S)
            continue
        try:
            while True:
                await follow_pass(workspace, host)
                await asyncio.sleep(POLL_S)
        finally:
            os.close(lock)


async def _follow_run(workspace: Workspace, run: Run) -> None:
    mirror = workspace.mirror.of(run.run_id, run.placement)
    copied = await workspace.backend(run.host).copy_new(run.run_id, mirror)
    taken_in = ingest_placement(workspace.metrics, mirror, run.run_id, run.placement)
    if not copied and not taken_in:
        _close_if_over(workspace, run)


def _close_if_over(workspace: Workspace, run: Run) -> None:
    body = workspace.metrics.fold(run.run_id, run.placement, 0)
    record = Record.from_dict(body["record"]) if body else Record()
    if record.closed:
        workspace.control.close_run(run.run_id, record.generation)


def _last_pass(home: Home, host: str) -> float:
    try:
        return home.follower_pass(host).stat().st_mtime
    except FileNotFoundError:
        return 0.0
