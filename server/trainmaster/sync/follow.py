"""Copies bytes from the host into the mirror, and into the database. One follower per host.

The process that holds the host's lock follows it; kill -9 frees the lock. It serves all open runs
of the host. Every other process reads the database.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.core.protocol.figures import spoken_duration
from trainmaster.backends import KAGGLE
from trainmaster.backends.follower import Follower
from trainmaster.errors.errors import HostError, StorageError
from trainmaster.home.paths import Home
from trainmaster.store.database import as_storage_error
from trainmaster.store.disk_space import LACKS
from trainmaster.store.failures import Failures
from trainmaster.sync.kept_passes import forget_passes
from trainmaster.sync.last_pass import ask_for_pass, last_pass
from trainmaster.sync.passes import Passes
from trainmaster.sync.workspace import Workspace

POLL_S = 0.25
# Passes over many runs are farther apart: a line is here within half a second all the same.
_LONGEST_POLL_S = 0.4
_MOST_OF_A_CORE = 0.0075
# How soon writes of another process's follower are seen.
_OTHERS_S = 0.1
# How often another process's follower is asked for the news of all runs.
_ASKED_EVERY_S = 1.0
_CATCH_UP_S = 2.0
# A pass that must connect first takes longer; after a recent failure the wait is shorter.
_OWN_PASS_S = 10.0
# Kaggle's client alone takes seconds to start.
_CLIENT_STARTS_S = 6.0
_RECENTLY_S = 60.0
_LOCK_WAIT_S = 30.0
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
# Of a host that nobody waits for any more.
_LONGEST_READ_S = 5.0
_AN_AGE_S = 365 * 86400.0


@asynccontextmanager
async def following(
    workspace: Workspace, host: str, awaited: str | None = None
) -> AsyncIterator[Following]:
    """Inside, the host is followed: by this process, or by the one that holds the lock.

    `awaited`: the run whose news are in the database at once. Those of the host's other runs are
    in the mirror at once, and in the database a little later, or as soon as anybody asks for them
    by `catch_up`. None: all of them at once. What follows beside asks once a second.

    A host that is unreachable, or whose data is refused, is retried until the end, and so is a home
    that takes no more, which answers say. Following ends only where the home itself can't be used,
    which the caller should check for.
    """
    followed = Following(workspace, host, awaited)
    try:
        yield followed
    finally:
        await followed.stop()


class Following:
    """A host that is followed; see `following`."""

    def __init__(self, workspace: Workspace, host: str, awaited: str | None) -> None:
        self._workspace = workspace
        self._host = host
        self._awaited = awaited
        self._written = asyncio.Event()
        self._is_own = False
        self._asked_t = 0.0
        self._pause_s = _SHORTEST_PAUSE_S  # after an error
        self._task = asyncio.create_task(self._follow())
        self._task.add_done_callback(lambda _: self._written.set())

    def check(self) -> None:
        """Raises: StorageError, sqlite3.Error: the home can't be used, so following has ended."""
        if self._task.done():
            self._task.result()

    async def until_written(self, version: tuple[int, int], bound_s: float) -> None:
        """Wait until points or events are written, by whichever process, since the metrics had
        this version; at most `bound_s`."""
        deadline = time.monotonic() + bound_s
        while (left_s := deadline - time.monotonic()) > 0:
            self._written.clear()
            if self._task.done() or self._workspace.metrics.version() != version:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s if self._is_own else min(left_s, _OTHERS_S)):
                    await self._written.wait()

    async def stop(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _follow(self) -> None:
        while True:
            try:
                lock = try_lock(self._workspace.home.follower_lock(self._host))
                if lock is None:
                    self._ask()
                    await asyncio.sleep(POLL_S)
                    continue
                await self._follow_holding(lock)
            except (OSError, sqlite3.Error, StorageError) as error:
                _record_unwritable(self._workspace, error)
            await asyncio.sleep(self._pause_s * random.uniform(0.75, 1.25))
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    async def _follow_holding(self, lock: int) -> None:
        """Follow until an error. Raises: as `Passes.survived`."""
        self._is_own = True
        try:
            forget_passes(lock)
            passes = Passes(self._workspace, self._host, self._awaited)
            try:
                async with self._workspace.backend(self._host).follower() as follower:
                    while True:
                        wait_s = await self._pass(passes, follower)
                        self._pause_s = _SHORTEST_PAUSE_S
                        await asyncio.sleep(wait_s)
            except Exception as error:
                passes.survived(error)
        finally:
            self._is_own = False
            os.close(lock)  # so that other processes can try

    def _ask(self) -> None:
        """The process that follows may await another run, and leave the news of this for later."""
        now = time.time()
        if now - self._asked_t >= _ASKED_EVERY_S:
            self._asked_t = now
            ask_for_pass(self._workspace.home, self._host, now)

    async def _pass(self, passes: Passes, follower: Follower) -> float:
        """Make a pass; seconds until the next one."""
        before_s = time.process_time()
        more = await passes.make(follower)
        if passes.has_written:
            self._written.set()
        return 0.0 if more else pause_s(time.process_time() - before_s)


def pause_s(processor_s: float) -> float:
    """Seconds until the next pass, after one that took so much processor time."""
    return max(POLL_S, min(processor_s / _MOST_OF_A_CORE, _LONGEST_POLL_S))


async def catch_up(workspace: Workspace, host: str, bound_s: float = _OWN_PASS_S) -> None:
    """Bring the database up to the time of this call; bounded, never an error of the host.

    Where another process follows the host, waits for its next pass. Where the home takes no more,
    that is recorded in the workspace, and its records stay as they are.

    Raises:
        StorageError, sqlite3.Error: the home can't be used.
    """
    if workspace.unwritable is not None:
        return
    try:
        await _catch_up(workspace, host, bound_s)
    except (OSError, sqlite3.Error, StorageError) as error:
        _record_unwritable(workspace, error)


def _record_unwritable(workspace: Workspace, error: OSError | sqlite3.Error | StorageError) -> None:
    """Record that the home takes no more. Raises: `error` itself where that is not why."""
    failure = as_storage_error(error, workspace.home.metrics_db)
    if failure.code not in LACKS:
        raise error
    workspace.found_unwritable(failure)


async def _catch_up(workspace: Workspace, host: str, bound_s: float) -> None:
    asked, deadline = time.time(), time.monotonic() + _CATCH_UP_S
    while time.monotonic() < deadline:
        lock = try_lock(workspace.home.follower_lock(host))
        if lock is not None:
            try:
                await _pass_alone(workspace, host, lock, bound_s)
            finally:
                os.close(lock)
            return
        if last_pass(workspace.home, host).t >= asked:
            return
        ask_for_pass(workspace.home, host, asked)
        await asyncio.sleep(0.02)


async def read_hosts(
    workspace: Workspace, hosts: Sequence[str], failures: Failures, within_s: float
) -> None:
    """Bring what is on record of these hosts up to date, as far as that is done within the time.

    The reads of slower hosts continue, one of each host however many callers wait for it, so that
    a later answer has what they bring. A host that has not answered is among the failures.
    """
    if not hosts:
        return
    reads = {host: _read_of(workspace, host) for host in hosts}
    await asyncio.wait(reads.values(), timeout=within_s)
    for host, read in reads.items():
        with failures.caught(host):
            if not read.done():
                age_s = max(0.0, time.time() - last_pass(workspace.home, host).t)
                raise _slow(host, age_s)
            read.result()


def _read_of(workspace: Workspace, host: str) -> asyncio.Task[None]:
    """The read of a host that is under way, or a new one."""
    read = workspace.host_reads.get(host)
    if read is None or read.done():
        read = asyncio.create_task(catch_up(workspace, host, _LONGEST_READ_S))
        read.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        workspace.host_reads[host] = read
    return read


def _slow(host: str, age_s: float) -> HostError:
    since = f"of {spoken_duration(age_s)} ago" if age_s < _AN_AGE_S else "on record"
    message = f"{host} has not answered yet; what is shown of its runs is {since}."
    return HostError("TIMEOUT", message, "Ask again in a moment.", retryable=True)


@asynccontextmanager
async def follower_lock(home: Home, hosts: Sequence[str]) -> AsyncIterator[None]:
    """Hold the locks of several hosts: no other process then writes to their mirrors or points.

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
                f"Another process is following {host}.",
                "End the command or the MCP server that follows it, then retry.",
                retryable=True,
            )
        await asyncio.sleep(0.05)
    forget_passes(lock)
    return lock


async def _pass_alone(workspace: Workspace, host: str, lock: int, bound_s: float) -> None:
    last = last_pass(workspace.home, host)
    has_just_failed = last.error is not None and time.time() - last.t < _RECENTLY_S
    again_s = _CLIENT_STARTS_S if host == KAGGLE else _CATCH_UP_S
    bound_s = min(bound_s, again_s if has_just_failed else _OWN_PASS_S)
    passes = workspace.kept_passes.take(host, lock, Passes) or Passes(workspace, host)
    try:
        async with (
            asyncio.timeout(bound_s),
            workspace.backend(host).follower() as follower,
        ):
            while await passes.make(follower):
                continue
    except TimeoutError:
        passes.timed_out(bound_s)
    except Exception as error:
        passes.survived(error)
    else:
        workspace.kept_passes.keep(host, lock, passes)
