"""Series of runs and of log files, compared or ranked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from trainmaster.answers.metrics import MetricsAnswer
from trainmaster.home.run_names import exact_names
from trainmaster.metrics.compare import compare_metrics
from trainmaster.metrics.log_file import log_file
from trainmaster.metrics.log_pattern import taught_patterns
from trainmaster.metrics.rank import ALL_RUNS, Among, rank_runs
from trainmaster.metrics.selection import EVERYTHING, Selection, bad_argument
from trainmaster.metrics.sources import FileSource, RunSource, Source, wanted_of_file
from trainmaster.metrics.telemetry import is_telemetry
from trainmaster.runs.log.mirrored_logs import newest_log
from trainmaster.runs.metrics.compared_settings import differences, settings_of
from trainmaster.runs.metrics.phase_table import phase_table
from trainmaster.sync.rebuild import rebuild_again
from trainmaster.sync.rebuild_state import incomplete
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

# What is read again at once, within a few seconds.
_MOST_BYTES = 64 << 20
_STAYS = "its recorded metrics have not changed"
DEFAULT_POINTS = 20
MOST_RANKED = 6
# Of more runs, and of settings beyond these, a table of values would be too long.
_MOST_COMPARED, _MOST_DIFFERENCES = 8, 20


async def query_metrics(
    workspace: Workspace,
    runs: Sequence[str],
    *,
    keys: Sequence[str] = (),
    points: int = DEFAULT_POINTS,
    everything: bool = False,
    part: Selection = EVERYTHING,
    among: Among = ALL_RUNS,
    pattern: str | None = None,
) -> MetricsAnswer:
    """Series of one or several runs, one value per step, the newest attempt's; or of log files,
    every point in order. Without any: the runs with the best values, of those in `among`, by
    groups that can be compared.

    `keys`: which metrics, `loss` and `val_loss` where none are named. At most `points` values each,
    means over buckets with their lows and highs; 0 are as many as a summary has room for.
    `everything` gives every step's own.
    `pattern`: the shape of the lines, where it is to be taught; a run's newest log is read again
    then. A run without metrics keeps it, one that has some keeps those.

    Raises:
        StateError: `RUN_NOT_FOUND`.
        UsageError: `BAD_ARGUMENT` for a key that the run doesn't have, or an invalid range;
            `LOG_NOT_READABLE`, `PATTERN_INVALID`, `PATTERN_TOO_SLOW`, `PATTERN_MATCHES_NOTHING`
            for a file.
        StateError: `READ_TOO_LONG` for a long file.
    """
    lacking = incomplete(workspace)
    if not runs:
        keys = keys or ("val_loss", "loss")
        ranked = rank_runs(workspace, keys, limit=points or MOST_RANKED, among=among)
        return ranked.model_copy(update={"incomplete": lacking})
    if among != ALL_RUNS:
        raise bad_argument("label", "Filters are for ranking runs.", "Leave them or the runs out.")
    taught_patterns(pattern)
    sources, views = await _sources(workspace, runs, keys, part, pattern)
    answer = compare_metrics(sources, keys, None if everything else max(0, points), part)
    if not views:
        return answer
    more = {
        "incomplete": lacking,
        "differences": _unlike(workspace, views),
        "phases": phase_table(workspace, *views.values()) if len(views) == 1 else None,
    }
    return answer.model_copy(update=more)


async def _sources(
    workspace: Workspace,
    names: Sequence[str],
    keys: Sequence[str],
    part: Selection,
    pattern: str | None,
) -> tuple[list[Source], dict[str, RunView]]:
    """What is read by each name, a run or a log file; and the views of the runs by their names."""
    sources: list[Source] = []
    views: dict[str, RunView] = {}
    for name in dict.fromkeys(names):
        with exact_names(len(names) > 1):
            file = log_file(workspace, name)
        view = None
        if file is None:
            with exact_names(len(names) > 1):
                view = await refresh(workspace, name)
            file = newest_log(workspace, view) if pattern is not None else None
        if file is not None:
            from trainmaster.metrics.read_file import read_file  # with it comes the whole parser

            wanted = wanted_of_file(keys, part, pattern)
            metrics = await read_file(file, wanted)
            change = None if view is None or pattern is None else teach(workspace, view, pattern)
            sources.append(FileSource(name, metrics, part, change))
        elif view is not None:
            sources.append(RunSource(workspace, view, name))
            views[name] = view
    return sources, views


def _unlike(workspace: Workspace, views: Mapping[str, RunView]) -> dict[str, dict[str, Any]] | None:
    """By setting the runs' values, of those that not all have alike; None without any."""
    if len(views) > _MOST_COMPARED:
        return None
    unlike, _ = differences([settings_of(workspace, view) for view in views.values()])
    rows = islice(unlike.items(), _MOST_DIFFERENCES)
    return {path: dict(zip(views, values, strict=True)) for path, values in rows} or None


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
