"""Copies bytes from the host into the mirror, and into the database. One follower per host.

The process that holds the host's lock follows it; kill -9 frees the lock. It serves all open runs
of the host. Every other process reads the database.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from trainer_runtime.core.decoding import DecodingError, decode_fields
from trainer_runtime.core.files.durable import try_lock
from trainmaster.backends import KAGGLE
from trainmaster.backends.follower import Followed, Follower, News
from trainmaster.store.database import is_of_the_database
from trainmaster.store.quota import run_limit_bytes
from trainmaster.store.refusals import Quarantine
from trainmaster.sync.ingest import Ingest, MirrorGrowth
from trainmaster.sync.mask_of_run import MaskOfRun
from trainmaster.sync.workspace import Workspace
from trainmaster.words.errors import HostError, StorageError
from trainmaster.words.paths import Home

POLL_S = 0.25
_CATCH_UP_S = 2.0
# A pass that must connect first takes longer; after a recent failure the wait is shorter.
_OWN_PASS_S = 10.0
# Kaggle's client alone takes seconds to start.
_CLIENT_STARTS_S = 6.0
_RECENTLY_S = 60.0
_LOCK_WAIT_S = 30.0
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
# How long lines of runs that nobody waits for may lie in the mirror alone.
_INGEST_EVERY_S = 5.0


@asynccontextmanager
async def following(
    workspace: Workspace, host: str, awaited: str | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    """Inside, the host is followed: by this process, or by the one that holds the lock.

    `awaited`: the run whose news are in the database at once. Those of the host's other runs are
    in the mirror at once, and in the database a little later, or as soon as anybody asks for them
    by `catch_up`. None: all of them at once.

    A host that is unreachable, or whose data is refused, is retried until the end. The task yielded
    ends only where the home itself can't be used, which the caller should check for.
    """
    task = asyncio.create_task(_follow(workspace, host, awaited))
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def catch_up(workspace: Workspace, host: str, bound_s: float = _OWN_PASS_S) -> None:
    """Bring the database up to the time of this call; bounded, never an error of the host.

    Where another process follows the host, waits for its next pass.

    Raises:
        StorageError, sqlite3.Error: the home can't be used.
    """
    asked, deadline = time.time(), time.monotonic() + _CATCH_UP_S
    while time.monotonic() < deadline:
        lock = try_lock(workspace.home.follower_lock(host))
        if lock is not None:
            try:
                await _pass_alone(workspace, host, bound_s)
            finally:
                os.close(lock)
            return
        if last_pass(workspace.home, host).t >= asked:
            return
        _ask(workspace.home, host, asked)
        await asyncio.sleep(0.02)


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


@dataclass(frozen=True, slots=True)
class LastPass:
    """How current the records of a host's runs are.

    `t`: when the newest pass over them began (Unix seconds), also one that failed. `skew_s`: how
    far the host's clock is ahead of the client's. `error`: code and message where the pass failed.
    """

    t: float = 0.0
    skew_s: float = 0.0
    error: tuple[str, str] | None = None


def last_pass(home: Home, host: str) -> LastPass:
    """The newest pass over a host's runs, whichever process made it."""
    try:
        path = home.follower_pass(host)
        row = decode_fields(path.read_bytes(), path.name)
        error = row.find_section("error")
        return LastPass(
            t=row.time("t"),
            skew_s=row.number("skew_s", 0.0),
            error=(error.text("code"), error.text("message")) if error else None,
        )
    except (OSError, DecodingError):
        return LastPass()


def record_unreachable(workspace: Workspace, host: str, error: HostError) -> None:
    """Record a failed attempt to reach the host, and its error."""
    _Passes(workspace, host).failed(error)


def _ask(home: Home, host: str, t: float) -> None:
    """Ask the process that follows the host to ingest everything that it copies after `t`."""
    path = home.follower_asked(host)
    with suppress(OSError):  # else its next regular time has to do
        if _asked_t(home, host) < t:
            path.touch()
            os.utime(path, (t, t))


def _asked_t(home: Home, host: str) -> float:
    try:
        return os.stat(home.follower_asked(host)).st_mtime
    except OSError:
        return 0.0


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
    return lock


async def _follow(workspace: Workspace, host: str, awaited: str | None) -> None:
    pause_s = _SHORTEST_PAUSE_S
    while True:
        lock = try_lock(workspace.home.follower_lock(host))
        if lock is None:
            await asyncio.sleep(POLL_S)
            continue
        passes = _Passes(workspace, host, awaited)
        try:
            async with workspace.backend(host).follower() as follower:
                while True:
                    more = await passes.make(follower)
                    pause_s = _SHORTEST_PAUSE_S
                    await asyncio.sleep(0 if more else POLL_S)
        except Exception as error:
            passes.survived(error)
        finally:
            os.close(lock)  # so that other processes can try
        await asyncio.sleep(pause_s * random.uniform(0.75, 1.25))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


async def _pass_alone(workspace: Workspace, host: str, bound_s: float) -> None:
    last = last_pass(workspace.home, host)
    has_just_failed = last.error is not None and time.time() - last.t < _RECENTLY_S
    again_s = _CLIENT_STARTS_S if host == KAGGLE else _CATCH_UP_S
    bound_s = min(bound_s, again_s if has_just_failed else _OWN_PASS_S)
    passes = _Passes(workspace, host)
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


class _Passes:
    """Passes over the open runs of one host, by the process that holds its lock.

    Each pass copies; which ones ingest all that was copied, `awaited` says; see `following`.
    """

    def __init__(self, workspace: Workspace, host: str, awaited: str | None = None) -> None:
        self._workspace = workspace
        self._host = host
        self._awaited = awaited
        self._ingest = Ingest(workspace.metrics)
        # What was copied and is not ingested yet, and when the last pass began that left nothing.
        self._copied: dict[tuple[str, int], MirrorGrowth] = {}
        self._ingested_t = 0.0
        self._followed: dict[tuple[str, int], Followed] = {}
        # By placement, the newest request answered by a host that has nothing more to write.
        self._answered: dict[tuple[str, int], int | None] = {}
        self._started: float | None = None
        self._skew_s: float | None = None
        self._passes = 0
        self._limit_bytes = run_limit_bytes(workspace.home)

    async def make(self, follower: Follower) -> bool:
        """Copy what is new of all open runs, and ingest it; True if there is more right now.

        Raises:
            HostError: the host can't be reached; what came before that is ingested.
        """
        self._started = time.time() if self._started is None else self._started
        takes_all = self._takes_all()
        held = self._workspace.metrics.refusals.quarantined()
        open_runs = [
            run
            for run in self._workspace.control.open_runs(self._host)
            if (run[0], run[1]) not in held
        ]
        wanted = {run_id: self._placement(*run) for run in open_runs for run_id in run[:1]}
        try:
            news = await follower.copy_new(wanted)
        except HostError:
            self._ingest.take_in(
                MirrorGrowth(run_id, number, self._followed[run_id, number].mirror, None)
                for run_id, number, _ in open_runs
            )
            self._copied.clear()
            raise
        self._quarantine(open_runs, news)
        self._note_copied(open_runs, wanted, news)
        self._take_in(takes_all=takes_all)
        ended = self._close(open_runs, wanted, news)
        self._passes += 1
        self._skew_s = news.skew_s
        if not news.more:  # else something that existed when this began is still unread
            if takes_all:
                self._note(self._started, None)
                self._ingested_t = self._started
            self._started = None
        return news.more or ended

    def failed(self, error: HostError) -> None:
        """Record why the host could not be followed."""
        self._note(time.time(), error)

    def survived(self, error: Exception) -> None:
        """Record any error of this host or its data, so that it stops no other one.

        Raises:
            StorageError, sqlite3.Error: `error` itself where it is the home's.
        """
        if isinstance(error, HostError):
            self.failed(error)
        elif is_of_the_database(error):
            raise error
        else:
            message = f"What it sends can't be read ({type(error).__name__})."
            self.failed(HostError("HOST_DATA_REFUSED", message, "Check the host.", retryable=True))

    def timed_out(self, bound_s: float) -> None:
        if self._passes == 0:
            message = f"{self._host} gave no answer within {bound_s:.0f} s."
            self.failed(HostError("TIMEOUT", message, "Check the link.", retryable=True))

    def _placement(self, run_id: str, number: int, newest_request: int) -> Followed:
        known = self._followed.get((run_id, number))
        answered = self._answered.get((run_id, number))
        over = answered is not None and answered >= newest_request
        if known is None or known.over != over:
            mirror = known.mirror if known else self._workspace.mirror.of(run_id, number)
            mask = known.mask if known else MaskOfRun(self._workspace.home, run_id)
            known = Followed(mirror, mask, over, self._limit_bytes)
            self._followed[run_id, number] = known
        return known

    def _quarantine(self, open_runs: Sequence[tuple[str, int, int]], news: News) -> None:
        if not news.refused:
            return
        with self._workspace.metrics.writing():
            for run_id, number, _ in open_runs:
                if run_id in news.refused:
                    found = Quarantine(*news.refused[run_id], time.time())
                    self._workspace.metrics.refusals.quarantine(run_id, number, found)

    def _takes_all(self) -> bool:
        """Whether this pass ingests everything that was copied."""
        if self._awaited is None or time.time() - self._ingested_t >= _INGEST_EVERY_S:
            return True
        return _asked_t(self._workspace.home, self._host) > self._ingested_t

    def _note_copied(
        self,
        open_runs: Sequence[tuple[str, int, int]],
        wanted: dict[str, Followed],
        news: News,
    ) -> None:
        for run_id, number, _ in open_runs:
            placement = (run_id, number)
            names: Collection[str] | None = news.changed.get(run_id)
            known = self._copied.get(placement)
            if placement not in self._answered:
                names = None  # an earlier process may not have read it
            elif names is None:
                continue
            elif known is not None:
                names = None if known.names is None else {*known.names, *names}
            self._copied[placement] = MirrorGrowth(run_id, number, wanted[run_id].mirror, names)

    def _take_in(self, *, takes_all: bool) -> None:
        """Ingest what was copied: of all runs, or of the awaited one."""
        grown = [one for one in self._copied.values() if takes_all or one.run_id == self._awaited]
        self._ingest.take_in(grown)
        for one in grown:
            placement = (one.run_id, one.placement)
            self._answered[placement] = self._ingest.closed(*placement)
            del self._copied[placement]

    def _close(
        self,
        open_runs: Sequence[tuple[str, int, int]],
        wanted: dict[str, Followed],
        news: News,
    ) -> bool:
        """Close the runs whose hosts have nothing more to write, once everything is ingested.

        True where a run turns out to be over: it can be closed after one more pass.
        """
        for run_id, number, _ in open_runs:
            answered = self._answered.get((run_id, number))
            is_kept = run_id in news.failed or run_id in news.refused
            is_copied = run_id not in news.changed and not is_kept and not news.more
            is_read = is_copied and (run_id, number) not in self._copied
            if wanted[run_id].over and is_read and answered is not None:
                self._workspace.control.close_run(run_id, answered)
        return any(
            not wanted[run_id].over and self._placement(run_id, number, newest).over
            for run_id, number, newest in open_runs
        )

    def _note(self, started: float, error: HostError | None) -> None:
        home = self._workspace.home
        skew_s = last_pass(home, self._host).skew_s if self._skew_s is None else self._skew_s
        row = {
            "t": started,
            "skew_s": round(skew_s, 3),
            "error": {"code": error.code, "message": error.message} if error else None,
        }
        path = home.follower_pass(self._host)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        with suppress(OSError):  # a full disk: waiting processes wait a little longer
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(row))
            os.replace(temporary, path)
