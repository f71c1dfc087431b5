"""Rebuilds the derived database from the mirror where it was lost or replaced, piece by piece.

One process at a time rebuilds, the one that holds the lock; after a kill the next one continues,
as offset, fold and points of each piece commit together. What acts waits for the end. What reads
rebuilds for a moment, leaves the rest to a detached process and says that answers are incomplete.
"""

from __future__ import annotations

import asyncio
import math
import os
import time

from trainer_runtime.core.files.durable import try_lock
from trainmaster.home.paths import Home
from trainmaster.store.detached import begin_locked
from trainmaster.sync.ingest import Ingest, MirrorGrowth
from trainmaster.sync.rebuild_state import refuse_incomplete, report_rebuild
from trainmaster.sync.workspace import Workspace

# Of one file and transaction: some 0.4 s, in which no other process writes.
PIECE_BYTES = 4 << 20
_A_MOMENT_S = 1.0
_POLL_S = 0.05
_REPORT_EVERY_S = 0.5


def rebuild(workspace: Workspace, piece_bytes: int = PIECE_BYTES) -> None:
    """Ingest the mirrors into a new database, or wait for the process that does.

    Raises:
        StorageError, sqlite3.Error: the database can't be used.
    """
    while workspace.metrics.replay_due:
        if rebuild_within(workspace, math.inf, piece_bytes) is None:
            time.sleep(_POLL_S)


def rebuild_again(workspace: Workspace, run_id: str | None = None) -> None:
    """Forget what is ingested, of a run or of all, and ingest it again, after others that rebuild.

    Other processes write between the transactions. After a kill any rebuild continues: points that
    were not forgotten yet are replaced.

    Raises:
        StorageError, sqlite3.Error: the database can't be used.
    """
    metrics = workspace.metrics
    while (lock := try_lock(workspace.home.rebuild_lock)) is None:
        time.sleep(_POLL_S)
    try:
        with metrics.writing():
            metrics.expect_replay()
            metrics.clear_records(run_id)
        is_left = True
        while is_left:
            with metrics.writing():
                is_left = metrics.clear_series(run_id)
        rebuild_holding(workspace)
    finally:
        os.close(lock)


def rebuild_holding(workspace: Workspace) -> None:
    """The same as `rebuild`, by a process that holds the lock."""
    _Rebuild(workspace, PIECE_BYTES).run(math.inf)


def rebuild_within(
    workspace: Workspace, within_s: float, piece_bytes: int = PIECE_BYTES
) -> bool | None:
    """Ingest the mirrors into a new database for a while, a piece at least; whether it is complete
    now, None where another process rebuilds it.

    Raises:
        StorageError, sqlite3.Error: the database can't be used.
    """
    lock = try_lock(workspace.home.rebuild_lock)
    if lock is None:
        return None
    try:
        return _Rebuild(workspace, piece_bytes).run(time.monotonic() + within_s)
    finally:
        os.close(lock)


def rebuild_behind(workspace: Workspace) -> None:
    """Rebuild what takes a moment, and leave the rest to a detached process; nothing where the home
    takes no more."""
    if workspace.unwritable is not None:
        return
    if workspace.metrics.replay_due and rebuild_within(workspace, _A_MOMENT_S) is False:
        begin_rebuild(workspace.home)


def begin_rebuild(home: Home) -> None:
    """Start a detached process that rebuilds, unless one does."""
    begin_locked(home, home.rebuild_lock, "rebuild")


async def await_rebuilt(workspace: Workspace, within_s: float) -> None:
    """Wait for a complete database, as what acts by it needs.

    Raises:
        StateError: `METRICS_BEING_REBUILT`.
    """
    rebuild_behind(workspace)
    deadline = time.monotonic() + within_s
    while workspace.metrics.replay_due and time.monotonic() < deadline:
        await asyncio.sleep(_POLL_S)
    refuse_incomplete(workspace)


class _Rebuild:
    """By the process that holds the lock."""

    def __init__(self, workspace: Workspace, piece_bytes: int) -> None:
        self._workspace = workspace
        self._metrics = workspace.metrics
        self._ingest = Ingest(workspace.metrics, piece_bytes)
        self._total_bytes = 0
        self._reported = -math.inf

    def run(self, deadline: float) -> bool:
        """Whether it is complete."""
        for grown in self._behind():
            more = [grown]
            while more:
                if (error := self._workspace.unwritable) is not None:
                    raise error
                more = self._ingest.take_portion(more)
                self._report()
                if time.monotonic() > deadline:
                    return False
            self._ingest.forget(grown.run_id, grown.placement)
        with self._metrics.writing():
            self._metrics.replayed()
        return True

    def _behind(self) -> list[MirrorGrowth]:
        """The placements with bytes to ingest: of open runs first, then the newest."""
        mirror, held = self._workspace.mirror, self._metrics.refusals.quarantined()
        opened = {run.run_id for run in self._workspace.control.runs(only_open=True)}
        self._total_bytes = self._metrics.ingested_bytes()
        order: dict[tuple[bool, float, str, int], MirrorGrowth] = {}
        for run_id, placement in mirror.placements():
            grown = MirrorGrowth(run_id, placement, mirror.of(run_id, placement), None)
            lag_bytes = 0 if (run_id, placement) in held else self._ingest.lag_bytes(grown)
            if lag_bytes:
                self._total_bytes += lag_bytes
                changed_t = grown.mirror.root.stat().st_mtime
                order[run_id not in opened, -changed_t, run_id, placement] = grown
        return [order[key] for key in sorted(order)]

    def _report(self) -> None:
        if time.monotonic() - self._reported > _REPORT_EVERY_S:
            self._reported = time.monotonic()
            done_bytes = self._metrics.ingested_bytes()
            report_rebuild(self._workspace.home, done_bytes, self._total_bytes)
