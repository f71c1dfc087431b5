"""A run's series put together from its attempts: one value per step, the newest attempt's."""

from __future__ import annotations

from trainer_runtime.core.lineage import live_until
from trainmaster.view import RunView
from trainmaster.workspace import Workspace


def run_points(workspace: Workspace, view: RunView, key: str) -> list[tuple[int, float]]:
    """(x, value) of one key, rising in x; what later attempts superseded is left out."""
    started_at = view.started_at
    values: dict[int, float] = {}
    for piece in workspace.metrics.series(view.run.run_id, key):
        if piece.placement != view.run.placement:
            continue
        # Attempt 0 is telemetry, which no attempt supersedes.
        until = live_until(piece.attempt, started_at) if piece.attempt else float("inf")
        for x, _, value in workspace.metrics.points(piece.sid, until):
            values[x] = value
    return sorted(values.items())
