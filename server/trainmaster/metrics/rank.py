"""Ranks all runs by their best value of a metric."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence

from trainmaster.metrics.compare import is_better_higher
from trainmaster.metrics.run_series import run_series
from trainmaster.metrics.series_sql import Best, bests
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.base import Number
from trainmaster.words.answers.metrics import MetricsAnswer, Ranking


def rank_runs(workspace: Workspace, keys: Sequence[str], *, limit: int) -> MetricsAnswer:
    """For each key the `limit` best runs of those in the database.

    Less is better, except for rates, accuracies and rewards. Superseded points don't count.
    """
    placements = {run.run_id: run.placement for run in workspace.control.runs()}
    restarted = _with_several_attempts(workspace, list(placements))
    ranking = {}
    for key in keys:
        found = _bests(workspace, placements, restarted, key)
        higher = bool(is_better_higher(key))
        best = sorted(found, key=lambda item: item.value, reverse=higher)[:limit]
        if best:
            values: list[Number] = [item.value for item in best]
            ranking[key] = Ranking(
                runs=[item.run_id for item in best],
                steps=[item.x for item in best],
                values=values,
            )
    return MetricsAnswer(runs={}, ranking=ranking)


def _bests(
    workspace: Workspace, placements: dict[str, int], restarted: set[str], key: str
) -> list[Best]:
    highest = bool(is_better_higher(key))
    by_run: dict[str, list[Best]] = defaultdict(list)
    for best in bests(workspace.metrics, list(placements), key, highest=highest):
        if best.series.placement == placements[best.run_id]:
            by_run[best.run_id].append(best)
    found = []
    for run_id, pieces in by_run.items():
        if len(pieces) == 1 and run_id not in restarted:
            found.append(pieces[0])
        elif (exact := _live_best(workspace, pieces[0], highest)) is not None:
            found.append(exact)
    return found


def _live_best(workspace: Workspace, any_piece: Best, highest: bool) -> Best | None:
    """The best point of a restarted run, without superseded ones."""
    series = any_piece.series
    whole = run_series(workspace, load_view(workspace, any_piece.run_id), series.key).whole()
    if whole is None:
        return None
    value, x = (whole.high, whole.high_x) if highest else (whole.low, whole.low_x)
    return None if value is None or x is None else Best(any_piece.run_id, series, x, value)


def _with_several_attempts(workspace: Workspace, run_ids: Sequence[str]) -> set[str]:
    rows = workspace.metrics.connection.execute(
        "SELECT DISTINCT run_id FROM folds WHERE attempt > 1"
        " AND run_id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(run_ids)),),
    )
    return {row[0] for row in rows}
