"""The run that a call acts on, where its name may be that of several."""

from __future__ import annotations

import time

from trainer_runtime.core.protocol.figures import spoken_duration
from trainmaster.errors.errors import UsageError
from trainmaster.home.run_names import exact_names
from trainmaster.store.run import Run
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace

_MOST_SHOWN = 8


def chosen_run(workspace: Workspace, run: str) -> Run:
    """The run of this id, or the only one of this name.

    Raises:
        StateError: `RUN_NOT_FOUND`.
        UsageError: `RUN_AMBIGUOUS`, several were launched under the name; they are listed.
    """
    candidates = workspace.control.runs_of_line(run)
    if len(candidates) < 2:
        with exact_names():
            return workspace.control.run(run)
    listed = [_described(workspace, candidate) for candidate in candidates[:_MOST_SHOWN]]
    more = len(candidates) - len(listed)
    others = f", and {more} older" if more else ""
    raise UsageError(
        "RUN_AMBIGUOUS",
        f"{len(candidates)} runs were launched as {run}: {'; '.join(listed)}{others}.",
        "Call again with the id of the one that is meant.",
        field="run_id",
    )


def _described(workspace: Workspace, run: Run) -> str:
    state = load_view(workspace, run.run_id).state.value
    age = spoken_duration(max(0.0, time.time() - run.created_t))
    return f"{run.run_id} ({state}, launched {age} ago)"
