"""Runs side by side: their results, and in which settings they differ."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from trainmaster.answers.board import (
    BoardCompared,
    BoardComparisonAnswer,
    BoardDifference,
    BoardResult,
)
from trainmaster.answers.metrics import MetricSeries
from trainmaster.metrics.compare import compare_metrics
from trainmaster.metrics.directions import PRIMARY_KEYS, is_better_higher
from trainmaster.metrics.selection import EVERYTHING
from trainmaster.metrics.sources import RunSource
from trainmaster.runs.metrics.compared_settings import differences, settings_of
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace


def comparison_of(workspace: Workspace, views: Sequence[RunView]) -> BoardComparisonAnswer:
    """The results of runs and what differs in their newest configurations."""
    sources = [RunSource(workspace, view, view.run.run_id) for view in views]
    keys_of = {source.name: frozenset(source.keys()) for source in sources}
    keys = _keys(keys_of.values())
    results: dict[str, dict[str, BoardResult]] = {source.name: {} for source in sources}
    best: dict[str, str] = {}
    notes: list[str] = []
    for key in keys:
        having = [source for source in sources if key in keys_of[source.name]]
        answer = compare_metrics(having, [key], 1, EVERYTHING)
        for name, series in answer.runs.items():
            results[name][key] = _result(key, series[key])
        best |= {name: best_run.run for name, best_run in (answer.best or {}).items()}
        notes += answer.notes or []
    unlike, same = differences([settings_of(workspace, view) for view in views])
    return BoardComparisonAnswer(
        runs=[_compared(view, results[view.run.run_id]) for view in views],
        keys=keys,
        best=best,
        differences=[BoardDifference(path=path, values=row) for path, row in unlike.items()],
        same=same,
        notes=list(dict.fromkeys(notes)) or None,
    )


def _keys(keys_of: Iterable[Collection[str]]) -> list[str]:
    """The most informative metrics that any of the runs has, losses first."""
    present = set[str]().union(*keys_of)
    return [key for key in PRIMARY_KEYS if key in present]


def _result(key: str, series: MetricSeries) -> BoardResult:
    higher = is_better_higher(key)
    best, step = (series.max, series.max_step) if higher else (series.min, series.min_step)
    return BoardResult(last=series.last, best=best, best_step=step)


def _compared(view: RunView, results: dict[str, BoardResult]) -> BoardCompared:
    return BoardCompared(
        run_id=view.run.run_id,
        name=view.run.name,
        state=view.state.value,
        step=view.step,
        target_step=view.target_step,
        results=results,
    )
