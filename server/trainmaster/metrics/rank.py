"""Ranks runs by their best value of a metric, among those that it compares."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from trainer_runtime.core.protocol.figures import rounded
from trainmaster.answers.base import Number
from trainmaster.answers.metrics import MetricsAnswer, Ranking
from trainmaster.backends import DEBUG
from trainmaster.metrics.directions import is_better_higher
from trainmaster.metrics.downsample import as_number
from trainmaster.metrics.run_series import run_series
from trainmaster.metrics.series_sql import Best, bests
from trainmaster.store.run import Run
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace

_MOST_SOURCES = 3
_MOST_GROUPS = 4


@dataclass(frozen=True, slots=True)
class Among:
    """The runs to rank: with this label (`key` or `key=value`), host and framework, where given."""

    label: str | None = None
    host: str | None = None
    framework: str | None = None

    def covers(self, run: Run) -> bool:
        name, _, value = (self.label or "").partition("=")
        label = run.labels.get(name)
        return (
            (self.label is None or (label is not None and (not value or str(label) == value)))
            and self.host in (None, run.host)
            and self.framework in (None, run.document.get("framework"))
        )


ALL_RUNS = Among()


def rank_runs(
    workspace: Workspace, keys: Sequence[str], *, limit: int, among: Among = ALL_RUNS
) -> MetricsAnswer:
    """For each key the `limit` best runs of those in the database, by groups whose values can be
    compared: the larger groups first, simulated runs last.

    Less is better, except for rates, accuracies and rewards. Superseded points don't count.
    """
    runs = [run for run in workspace.control.runs() if among.covers(run)]
    groups = {run.run_id: Group.of(run) for run in runs}
    placements = {run.run_id: run.placement for run in runs}
    labels = {run.run_id: run.labels if among.label else {} for run in runs}
    restarted = _with_several_attempts(workspace, list(placements))
    ranking: dict[str, Ranking] = {}
    left_out = 0
    for key in keys:
        by_group: dict[Group, list[Best]] = defaultdict(list)
        for best in _bests(workspace, placements, restarted, key):
            by_group[groups[best.run_id]].append(best)
        ordered = sorted(by_group, key=lambda group: (group.simulated, -len(by_group[group])))
        left_out = max(left_out, len(ordered) - _MOST_GROUPS)
        for name, group in _named(key, ordered[:_MOST_GROUPS]):
            ranking[name] = _ranking(key, by_group[group], limit, labels)
    notes = [f"{left_out} smaller groups of runs are left out: filter by label, host or framework."]
    return MetricsAnswer(runs={}, ranking=ranking, notes=notes if left_out > 0 else None)


def _named(key: str, groups: Sequence[Group]) -> Iterable[tuple[str, Group]]:
    """Names for the rankings of a key: its own where all runs can be compared."""
    if len(groups) == 1:
        yield key, groups[0]
        return
    seen: dict[str, int] = defaultdict(int)
    for group in groups:
        seen[str(group)] += 1
        number = f" #{seen[str(group)]}" if seen[str(group)] > 1 else ""
        yield f"{key} ({group}{number})", group


def _ranking(
    key: str, bests: Sequence[Best], limit: int, labels: Mapping[str, Mapping[str, object]]
) -> Ranking:
    higher = bool(is_better_higher(key))
    best = sorted(bests, key=lambda item: item.value, reverse=higher)[:limit]
    values: list[Number] = [as_number(rounded(item.value)) for item in best]
    return Ranking(
        runs=[item.run_id for item in best],
        steps=[item.x for item in best],
        values=values,
        labels=_differing([labels[item.run_id] for item in best]),
    )


def _differing(labels: Sequence[Mapping[str, object]]) -> list[dict[str, str]] | None:
    """Of each run's labels those that not all have alike, such as the varied value of an array."""
    names = sorted({name for labels_of_run in labels for name in labels_of_run})
    unlike = [
        name
        for name in names
        if len({str(labels_of_run.get(name)) for labels_of_run in labels}) > 1
    ]
    if not unlike:
        return None
    return [
        {name: str(labels_of_run[name]) for name in unlike if name in labels_of_run}
        for labels_of_run in labels
    ]


def _bests(
    workspace: Workspace, placements: dict[str, int], restarted: set[str], key: str
) -> list[Best]:
    highest = bool(is_better_higher(key))
    by_run: dict[str, list[Best]] = defaultdict(list)
    for best in bests(workspace.metrics, list(placements), key, highest=highest):
        if best.series.placement == placements[best.run_id]:
            by_run[best.run_id].append(best)
    of_runs = []
    for run_id, pieces in by_run.items():
        if len(pieces) == 1 and run_id not in restarted:
            of_runs.append(pieces[0])
        elif (exact := _live_best(workspace, pieces[0], highest)) is not None:
            of_runs.append(exact)
    return of_runs


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


@dataclass(frozen=True, slots=True)
class Group:
    """Runs whose losses mean the same: one method, the same data and tokenizer; simulated ones are
    by themselves."""

    simulated: bool
    method: str
    data: str
    named: str

    @classmethod
    def of(cls, run: Run) -> Group:
        data = run.document.get("data")
        data = data if isinstance(data, Mapping) else {}
        sources = [item for item in data.get("sources") or () if isinstance(item, Mapping)]
        identity = data.get("fingerprint") or json.dumps(
            [sources, data.get("tokenizer")], sort_keys=True, default=str
        )
        names = [PurePath(str(item.get("path") or item.get("name"))).name for item in sources]
        more = ["..."] * (len(names) > _MOST_SOURCES)
        method = str(run.document.get("method"))
        named = "+".join([*names[:_MOST_SOURCES], *more]) or "unknown data"
        return cls(run.host == DEBUG, method, str(identity), named)

    def __str__(self) -> str:
        return ", ".join([self.method, self.named, *["simulated"] * self.simulated])
