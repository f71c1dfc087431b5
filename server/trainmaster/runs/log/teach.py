"""Keeps the pattern of a run's log, so that every answer about the run reads it so."""

from __future__ import annotations

from trainmaster.metrics.telemetry import is_telemetry
from trainmaster.runs.log.mirrored_logs import newest_log
from trainmaster.sync.rebuild import rebuild_again
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

# What is read again at once, within a few seconds.
_MOST_BYTES = 64 << 20
_STAYS = "its recorded metrics have not changed"


def teach(workspace: Workspace, view: RunView, pattern: str) -> str:
    """Read the run's logs by the pattern from now on, where they had no metrics without one, and
    what is known of them again; in words, what that changed. The pattern matches the newest log.

    Raises:
        UsageError: `LOG_NOT_READABLE`.
    """
    run_id = view.run.run_id
    mirror = workspace.mirror.of(run_id, view.run.placement)
    if mirror.pattern() is None and not all(map(is_telemetry, workspace.metrics.keys(run_id))):
        return _STAYS
    if workspace.unwritable is not None or newest_log(workspace, view).stat().st_size > _MOST_BYTES:
        return _STAYS
    if mirror.pattern() != pattern:
        mirror.teach(pattern)
        rebuild_again(workspace, run_id)
    return "this machine keeps the pattern, and all its answers about the run go by it"
