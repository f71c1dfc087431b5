"""Runs of which more is mirrored than ingested, as when their metrics database was lost."""

from __future__ import annotations

import time

from support.core.journal_records import attempt_starting, metric, started, state
from support.runs.planted_journal import EVENTS, PlantedJournal

from trainer_runtime.core.protocol.lines import encode
from trainmaster.sync.workspace import Workspace


def plant_mirror(workspace: Workspace, name: str, steps: int) -> str:
    """A run that has taken so many steps, of which only the journal is ingested."""
    run = PlantedJournal(workspace, name)
    run.write(attempt_starting(1), ("attempt_running", {"attempt": 1}), state("running"))
    bodies = [started(0, 2 * steps), *(metric(1 + at, 2.5, lr=0.1) for at in range(steps))]
    t = time.time()
    made = (encode(seq, t, kind, fields) for seq, (kind, fields) in enumerate(bodies))
    workspace.mirror.of(run.run_id, 1).append(EVENTS, b"".join(made))
    return run.run_id


def lose_metrics(workspace: Workspace) -> None:
    """Remove the metrics database; it is created again when it is next opened."""
    workspace.reopen_metrics()
    for path in workspace.home.root.glob("metrics.db*"):
        path.unlink()
