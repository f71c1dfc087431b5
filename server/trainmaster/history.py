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


def attempt_points(workspace: Workspace, run: str, key: str) -> dict[int, dict[int, float]]:
    """What each attempt of a run measured, superseded or not: attempt to step to value.

    Raises:
        StateError: `RUN_NOT_FOUND`.
    """
    found = workspace.control.run(run)
    values: dict[int, dict[int, float]] = {}
    for piece in workspace.metrics.series(found.run_id, key):
        if piece.placement == found.placement:
            points = workspace.metrics.points(piece.sid)
            values.setdefault(piece.attempt, {}).update({x: value for x, _, value in points})
    return values
