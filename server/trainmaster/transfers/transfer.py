"""Transfers between this machine and a run's host, in one process per run.

`advance` starts it when something is due and no process holds the run's transfer lock. It outlives
its starter, retries through lost links, and ends when nothing is due any more. It may be killed
at any time: what has arrived is kept, and the next `advance` starts another.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from trainer_runtime.core.files.durable import try_lock
from trainmaster.answers.runs import TransferAnswer
from trainmaster.backends import NAMES
from trainmaster.errors.errors import HostError, TrainmasterError
from trainmaster.store.detached import begin_locked
from trainmaster.store.run import Run
from trainmaster.sync.follow import catch_up
from trainmaster.sync.mirrored_checkpoints import is_mirrored_here
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.transfer_progress import TransferProgress, read_progress, write_progress
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.checkpoint_mirror import due_mirror
from trainmaster.transfers.upload_data import due_upload, wants_upload
from trainmaster.transfers.upload_folder import due_inputs, wants_inputs
from trainmaster.transfers.upload_wheels import due_wheels

_WRITE_EVERY_S = 0.5
_CHECK_EVERY_S = 1.0
_CATCH_UP_EVERY_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 10.0
_RATE_OVER_S = 10.0
# The next `advance` starts another transfer.
_GIVE_UP_AFTER_S = 3600.0


Advance = Callable[[Workspace, str], Awaitable[object]]


class Report(Protocol):
    def __call__(self, done_bytes: int, total_bytes: int, /) -> None: ...


class Transfer(Protocol):
    """One item to transfer; `attempt`: the attempt that it is finished for once it is done."""

    what: str
    attempt: int

    async def carry_out(self, report: Report) -> None:
        """Transfer it, resuming where it was interrupted.

        Raises:
            HostError: a temporary failure; it is still due.
            TrainmasterError: a permanent failure.
        """


def due_transfers(workspace: Workspace, run_id: str) -> list[Transfer]:
    """The transfers due for a run by the local records; contacts no host."""
    run = workspace.control.run(run_id)
    if run.cleaned or not _may_travel(run) or not workspace.control.is_placed(run):
        return []
    if workspace.control.host(run.host) is None and run.host not in NAMES:
        return []  # it was removed; transfers continue once it has been added again
    view = load_view(workspace, run_id)
    due: list[Transfer | None] = [
        due_wheels(workspace, view),
        *due_inputs(workspace, view),
        due_upload(workspace, view),
        None if _is_away(view) else due_mirror(workspace, view),
    ]
    return [item for item in due if item is not None]


def begin_transfers(workspace: Workspace, run: Run) -> bool:
    """Start the run's transfers, detached, where any are due and none is running; True if so."""
    if not due_transfers(workspace, run.run_id):
        return False
    lock = workspace.home.transfer_lock(run.run_id)
    return begin_locked(workspace.home, lock, "transfer", run.run_id)


async def transfer(
    workspace: Workspace,
    run: str,
    *,
    lock_descriptor: int | None = None,
    patience_s: float = _GIVE_UP_AFTER_S,
    advance: Advance | None = None,
) -> TransferAnswer:
    """Carry out the due transfers of a run; returns at once where another process does.

    `lock_descriptor`: the run's transfer lock, if the caller holds it. A host that is unreachable
    for `patience_s` is given up. `advance`: does what is due for a run at Kaggle once its data has
    arrived; None: the next acting call does.

    Raises:
        StateError: `RUN_NOT_FOUND`.
    """
    run_id = workspace.control.run(run).run_id
    lock = lock_descriptor
    if lock is None:
        lock = try_lock(workspace.home.transfer_lock(run_id))
    if lock is None:
        return TransferAnswer(run_id=run_id, done=[])
    try:
        transfers = _Transfers(workspace, run_id, patience_s)
        done = await transfers.run_all()
    finally:
        os.close(lock)
    sessions = load_view(workspace, run_id).sessions
    if advance is not None and sessions is not None and sessions.files_travel:
        with suppress(HostError):  # the next acting call tries again
            await advance(workspace, run_id)
    return TransferAnswer(run_id=run_id, done=done)


def _may_travel(run: Run) -> bool:
    """Whether a run ever transfers anything; most don't, and are not checked further."""
    environment = run.config.environment
    wheels = environment is not None and environment.wheels_from is not None
    return wheels or wants_inputs(run) or wants_upload(run) or is_mirrored_here(run)


def _is_away(view: RunView) -> bool:
    """Whether a session has the run's files now."""
    return view.sessions is not None and view.sessions.files_travel and view.sessions.alive


class _Transfers:
    """One process's work on a run's transfers."""

    def __init__(self, workspace: Workspace, run_id: str, patience_s: float) -> None:
        self._workspace = workspace
        self._run_id = run_id
        self._patience_s = patience_s
        self._away_since_s: float | None = None
        self._host = workspace.control.run(run_id).host
        self._progress = read_progress(workspace.home, run_id) or TransferProgress(what="")
        self._seen: deque[tuple[float, int]] = deque()
        self._caught_up_s = time.monotonic()

    async def run_all(self) -> list[str]:
        """Carry out the transfers; the items done, in order."""
        done: list[str] = []
        pause_s = _FIRST_PAUSE_S
        while due := self._due_transfers():
            failed = False
            for item in due:
                try:
                    if await self._carry_out(item):
                        done.append(item.what)
                    else:
                        failed = True
                    self._away_since_s = None
                except HostError as error:
                    self._record_unreachable(error)
                    self._record_error(error)
                    failed = True
            await self._pause(pause_s if failed else _FIRST_PAUSE_S)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S) if failed else _FIRST_PAUSE_S
        self._write(replace(self._progress, active=False))
        return done

    def _due_transfers(self) -> list[Transfer]:
        """The remaining transfers; none where the host was unreachable for too long."""
        since_s = self._away_since_s
        if since_s is not None and time.monotonic() - since_s > self._patience_s:
            return []
        return due_transfers(self._workspace, self._run_id)

    def _record_unreachable(self, error: HostError) -> None:
        if not error.unanswered or self._moved:
            self._away_since_s = None
        elif self._away_since_s is None:
            self._away_since_s = time.monotonic()

    @property
    def _moved(self) -> bool:
        """Whether anything has arrived since the current transfer began."""
        return len(self._seen) > 1

    async def _carry_out(self, item: Transfer) -> bool:
        """False where it is not wanted any more, or failed permanently.

        Raises:
            HostError: it can be tried again.
        """
        self._seen.clear()
        self._begin(item)
        working = asyncio.create_task(item.carry_out(self._report))
        watching = asyncio.create_task(self._watch(item))
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                watching.result()  # raises what ended it, if it was that
                return False
            await working
        except HostError:
            raise
        except TrainmasterError as lasting:
            self._record_error(lasting)
            self._finish(item)
            return False
        finally:
            for task in (working, watching):
                task.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)
        self._progress = replace(self._progress, error=None)
        self._finish(item)
        return True

    def _begin(self, item: Transfer) -> None:
        """Record the start; an earlier error stays visible until bytes move."""
        before = self._progress
        finished = {kind: number for kind, number in before.finished.items() if kind != item.what}
        self._progress = (
            replace(before, active=True, finished=finished)
            if before.what == item.what and before.error is not None
            else TransferProgress(item.what, finished=finished)
        )

    async def _watch(self, item: Transfer) -> None:
        """Record the progress; ends once the item is not wanted any more."""
        checked_s = time.monotonic()
        while True:
            await asyncio.sleep(_WRITE_EVERY_S)
            self._write(self._with_rate())
            if time.monotonic() - checked_s >= _CHECK_EVERY_S:
                checked_s = time.monotonic()
                await self._catch_up()
                wanted = due_transfers(self._workspace, self._run_id)
                if all(other.what != item.what for other in wanted):
                    return

    async def _pause(self, pause_s: float) -> None:
        """Wait before another try, while anything is due."""
        until_s = time.monotonic() + pause_s
        while time.monotonic() < until_s and self._due_transfers():
            await asyncio.sleep(min(_CHECK_EVERY_S, pause_s))
        await self._catch_up()

    async def _catch_up(self) -> None:
        """Follow the host from time to time: the run may have ended there."""
        if time.monotonic() - self._caught_up_s >= _CATCH_UP_EVERY_S:
            self._caught_up_s = time.monotonic()
            await catch_up(self._workspace, self._host)

    def _report(self, done_bytes: int, total_bytes: int) -> None:
        now = time.monotonic()
        self._seen.append((now, done_bytes))
        error = None if done_bytes > self._seen[0][1] else self._progress.error
        while now - self._seen[0][0] > _RATE_OVER_S:
            self._seen.popleft()
        self._progress = replace(
            self._progress, done_bytes=done_bytes, total_bytes=total_bytes, error=error
        )

    def _with_rate(self) -> TransferProgress:
        rate = 0.0
        if len(self._seen) > 1:
            (first_s, first_bytes), (last_s, last_bytes) = self._seen[0], self._seen[-1]
            rate = (last_bytes - first_bytes) / max(last_s - first_s, _WRITE_EVERY_S)
        return replace(self._progress, bytes_per_s=round(max(0.0, rate), 1))

    def _record_error(self, error: TrainmasterError) -> None:
        row = {"code": error.code, "message": error.message, "fix": error.fix}
        self._write(replace(self._progress, error=row, bytes_per_s=0.0))

    def _finish(self, item: Transfer) -> None:
        finished = {**self._progress.finished, item.what: item.attempt}
        self._write(replace(self._progress, finished=finished, bytes_per_s=0.0))

    def _write(self, progress: TransferProgress) -> None:
        self._progress = replace(progress, t=time.time())
        write_progress(self._workspace.home, self._run_id, self._progress)
