"""What answers lack while the derived database is rebuilt, or the home takes no more."""

from __future__ import annotations

import json
import os
from contextlib import suppress

from trainmaster.errors.errors import StateError
from trainmaster.home.paths import Home
from trainmaster.sync.workspace import Workspace

NOT_CURRENT = "Not brought up to date"


def incomplete(workspace: Workspace) -> str | None:
    """What an answer lacks that is made now, in words; None where records are complete."""
    if workspace.unwritable is not None:
        return f"{NOT_CURRENT}: {workspace.unwritable.message}"
    if not workspace.metrics.replay_due:
        return None
    return f"{being_rebuilt(workspace.home)}: states and metrics may be out of date."


def refuse_incomplete(workspace: Workspace) -> None:
    """Raises:
    StateError: `METRICS_BEING_REBUILT`.
    """
    if workspace.metrics.replay_due:
        raise StateError(
            "METRICS_BEING_REBUILT",
            f"{being_rebuilt(workspace.home)}.",
            "That continues in the background: repeat the same call in a while.",
            retryable=True,
        )


def being_rebuilt(home: Home) -> str:
    """That it is, and how much of it is done where that is known."""
    fact = "The metrics database is being rebuilt"
    try:
        done_bytes, total_bytes = json.loads(home.rebuild_progress.read_bytes())
        return f"{fact} ({min(99, 100 * done_bytes // max(1, total_bytes))} %)"
    except (OSError, ValueError, TypeError):
        return fact


def report_rebuild(home: Home, done_bytes: int, total_bytes: int) -> None:
    """Record how far a rebuild is."""
    path = home.rebuild_progress
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(OSError):  # not through to the disk, nor needed
        temporary.write_text(json.dumps([done_bytes, total_bytes]))
        temporary.replace(path)
