"""The note on an alert whose metric no training has reported so far."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from trainer_runtime.core.alerts.condition import MetricCondition
from trainmaster.alerts.rules import checked_condition
from trainmaster.metrics.sources import EXPECTED
from trainmaster.store.run import Run
from trainmaster.sync.follow import catch_up
from trainmaster.sync.workspace import Workspace


async def unknown_metric_note(workspace: Workspace, when: str, run: Run | None) -> str | None:
    """A note where a condition names a metric that its run lacks and no training is
    known to report. It may still come: the caller decides.

    Without a run, the metrics of all open runs count.
    """
    condition = checked_condition(when)
    if not isinstance(condition, MetricCondition) or _expected(condition.key):
        return None
    if run is not None and not run.closed:
        await catch_up(workspace, run.host)
    runs = [run] if run else workspace.control.runs(only_open=True)
    there = {key for known_run in runs for key in workspace.metrics.keys(known_run.run_id)}
    if condition.key in there:
        return None
    whose = f"The run has no metric `{condition.key}`" if run else f"No run has `{condition.key}`"
    return f"{whose} so far{_meant(condition.key, there | EXPECTED)}."


def _expected(key: str) -> bool:
    return key.partition("/")[0] in EXPECTED


def _meant(key: str, there: Collection[str]) -> str:
    alike = get_close_matches(key, sorted(there), n=1, cutoff=0.6)
    return f"; did you mean `{alike[0]}`? It is watched for all the same" if alike else ""
