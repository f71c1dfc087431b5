"""What the page shows, by the functions that answer commands and tools; from what is on record."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from trainer_runtime import __version__
from trainer_runtime.core.protocol.command import command
from trainmaster.answers.board import (
    BoardAnswer,
    BoardCheckpoint,
    BoardCompared,
    BoardComparisonAnswer,
    BoardCurve,
    BoardCurvesAnswer,
    BoardDifference,
    BoardMachinesAnswer,
    BoardMark,
    BoardPanel,
    BoardPatch,
    BoardResult,
    BoardRunAnswer,
    BoardSample,
    BoardSetting,
)
from trainmaster.answers.diagnosis import FindingAnswer
from trainmaster.answers.metrics import MetricSeries
from trainmaster.answers.plot import Axis
from trainmaster.answers.runs import CheckpointRow
from trainmaster.errors.errors import UsageError
from trainmaster.machines.host_registry import list_hosts
from trainmaster.machines.renting.costs import list_costs
from trainmaster.metrics.compare import compare_metrics
from trainmaster.metrics.directions import PRIMARY_KEYS, is_better_higher
from trainmaster.metrics.plots.curves import Mark, marks_of
from trainmaster.metrics.plots.panels import MOST_PANELS, Panel, panels_among
from trainmaster.metrics.run_series import RunSeries, run_series
from trainmaster.metrics.selection import EVERYTHING, Selection
from trainmaster.metrics.sources import RunSource
from trainmaster.metrics.telemetry import is_telemetry
from trainmaster.runs.diagnose import diagnosis_of
from trainmaster.runs.diagnosis.attempt_changes import is_of, named_in_spec
from trainmaster.runs.events.watch import Watch
from trainmaster.runs.lists.list_checkpoints import checkpoints_of
from trainmaster.runs.log.logs import last_lines
from trainmaster.runs.metrics.compared_settings import differences, settings_of
from trainmaster.runs.metrics.plot import MOST_RUNS
from trainmaster.runs.overview.overview import overview_on_record
from trainmaster.runs.status.newest_samples import of_training
from trainmaster.runs.status.status import whole_status
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace

# Ended runs fill up what open ones leave.
_RUNS = 100
_LINES = 40
_POINTS = 400
_MOST_KEYS = 500
_MOST_MARKS = 200
_MOST_SAMPLES = 20


@dataclass(frozen=True, slots=True)
class CurvesQuery:
    """Which curves: of these runs, the standard panels and one for each of `keys`, over `axis`;
    from `first` to `last` step, None: without a bound."""

    runs: Sequence[str]
    keys: Sequence[str] = ()
    axis: Axis = "step"
    first: int | None = None
    last: int | None = None


class Reads:
    """Reads of one home; none follows a host, starts or sends anything."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._watch = Watch(workspace, few=_RUNS)

    async def board(self) -> BoardAnswer:
        overview, watched = overview_on_record(self._workspace), self._watch.rows()
        return BoardAnswer(
            version=__version__,
            home=str(self._workspace.home.root),
            attention=overview.attention,
            runs=watched.runs,
            usd_per_h=watched.usd_per_h,
            next_step=overview.next_step,
        )

    async def run(self, run: str) -> BoardRunAnswer:
        """Raises: StateError: `RUN_NOT_FOUND`."""
        view = load_view(self._workspace, run)
        diagnosis = diagnosis_of(view, everything=True)
        checkpoints, resume_from = board_checkpoints(self._workspace, view)
        return BoardRunAnswer(
            status=whole_status(self._workspace, view, detail=True),
            settings=board_settings(self._workspace, view),
            metric=view.index.metric,
            checkpoints=checkpoints,
            resume_from=resume_from,
            samples=board_samples(self._workspace, view),
            diagnosis=diagnosis,
            patches=_patches(view, diagnosis.findings) if _can_resume(view) else [],
            untrusted_lines=await last_lines(self._workspace, view, limit=_LINES),
        )

    async def curves(self, query: CurvesQuery) -> BoardCurvesAnswer:
        """Raises:
        StateError: `RUN_NOT_FOUND`.
        UsageError: `BAD_ARGUMENT`, too many runs or keys, or a run that reports no tokens.
        """
        if len(query.keys) > MOST_PANELS:
            message = f"{len(query.keys)} metrics in one picture."
            raise UsageError("BAD_ARGUMENT", message, f"Name {MOST_PANELS} at most.", field="key")
        views = self._views(query.runs)
        sources = [RunSource(self._workspace, view, view.run.run_id) for view in views]
        all_keys = set[str]().union(*(source.keys() for source in sources))
        panels = panels_among(all_keys, query.axis, compared=len(sources) > 1)
        standard = {key for panel in panels for key in panel.keys}
        wanted = [key for key in query.keys if key in all_keys and key not in standard]
        panels += panels_among(all_keys, query.axis, wanted)
        drawn = [key for panel in panels for key in panel.keys]
        return BoardCurvesAnswer(
            axis=query.axis,
            panels=[_panel(panel) for panel in panels],
            keys=sorted(all_keys - standard)[:_MOST_KEYS],
            runs=[
                self._curve(view, source, drawn, query)
                for view, source in zip(views, sources, strict=True)
            ],
        )

    async def comparison(self, runs: Sequence[str]) -> BoardComparisonAnswer:
        """Raises: StateError: `RUN_NOT_FOUND`; UsageError: `BAD_ARGUMENT`, too many runs."""
        return comparison_of(self._workspace, self._views(runs))

    async def machines(self) -> BoardMachinesAnswer:
        hosts, costs = await list_hosts(self._workspace), await list_costs(self._workspace)
        return BoardMachinesAnswer(hosts=hosts.hosts, costs=costs)

    def _views(self, runs: Sequence[str]) -> list[RunView]:
        if not 0 < len(runs) <= MOST_RUNS:
            message = f"{len(runs)} runs in one picture."
            raise UsageError("BAD_ARGUMENT", message, f"Name 1 to {MOST_RUNS}.", field="run")
        return [load_view(self._workspace, run) for run in dict.fromkeys(runs)]

    def _curve(
        self, view: RunView, source: RunSource, keys: Sequence[str], query: CurvesQuery
    ) -> BoardCurve:
        began_t, marks = marks_of(self._workspace, view)
        return BoardCurve(
            run_id=view.run.run_id,
            name=view.run.name,
            state=view.state.value,
            target_step=view.target_step,
            began_t=began_t,
            series=_series(source, keys, query),
            marks=[_mark(mark) for mark in marks[-_MOST_MARKS:]],
        )


def _series(source: RunSource, keys: Sequence[str], query: CurvesQuery) -> dict[str, MetricSeries]:
    """The drawn keys that the run has; telemetry, which has no steps, whole."""
    has = [key for key in keys if key in set(source.keys())]
    timed = [key for key in has if is_telemetry(key)]
    stepped = [key for key in has if not is_telemetry(key)]
    axis = None if query.axis == "step" else query.axis
    part = Selection(from_step=query.first, to_step=query.last, axis=axis)
    series: dict[str, MetricSeries] = {}
    for chosen, selection in ((stepped, part), (timed, Selection())):
        if chosen:
            series |= compare_metrics([source], chosen, _POINTS, selection).runs[source.name]
    return series


def _can_resume(view: RunView) -> bool:
    """Whether `resume` would not be refused for the state of the run."""
    may = view.ended or view.record.awaits_choice(view.now)
    return may and not (view.run.is_attached or view.run.cleaned)


def _patches(view: RunView, findings: Sequence[FindingAnswer]) -> list[BoardPatch]:
    return [
        BoardPatch(
            finding=finding.id,
            patch=patch.id,
            next_step=command("resume", view.run.run_id, "--apply", f"{finding.id}:{patch.id}"),
        )
        for finding in findings
        if not finding.over
        for patch in finding.patches
    ]


def _panel(panel: Panel) -> BoardPanel:
    return BoardPanel(title=panel.title, keys=list(panel.keys), by_time=is_telemetry(panel.keys[0]))


def _mark(mark: Mark) -> BoardMark:
    return BoardMark(
        kind=mark.kind,
        step=mark.x,
        minute=round(mark.minute, 3),
        label=mark.label,
        critical=mark.critical or None,
    )


def board_settings(workspace: Workspace, view: RunView) -> list[BoardSetting]:
    """Every value of the newest configuration, with those that the spec names."""
    names = list(named_in_spec(view.run.spec))
    return [
        BoardSetting(
            path=path, value=value, chosen=any(is_of(path, name) for name in names) or None
        )
        for path, value in settings_of(workspace, view).items()
    ]


def board_checkpoints(
    workspace: Workspace, view: RunView
) -> tuple[list[BoardCheckpoint], int | None]:
    """The existing checkpoints, the newest first, and the step that a resume would take; none of
    a cleaned run."""
    if view.run.cleaned:
        return [], None
    answer, losses = checkpoints_of(view), run_series(workspace, view, "loss")
    rows = [*_rows(answer.checkpoints, losses), *_rows(answer.superseded or (), None)]
    return sorted(rows, key=lambda row: row.step, reverse=True), answer.resume_from


def _rows(rows: Iterable[CheckpointRow], losses: RunSeries | None) -> Iterable[BoardCheckpoint]:
    """`losses` None: the rows are superseded, and so is what was measured at their steps."""
    for row in rows:
        point = None if losses is None else losses.until(row.step)
        loss = None if point is None else point[2]
        superseded = True if losses is None else None
        yield BoardCheckpoint(**vars(row), loss=loss, superseded=superseded)


def board_samples(workspace: Workspace, view: RunView) -> list[BoardSample]:
    """The texts that the model wrote, those of the newest steps first, without superseded ones."""
    samples = [
        BoardSample(
            step=sample.step or 0,
            attempt=attempt,
            untrusted_prompt=sample.untrusted_prompt or "",
            untrusted_text=sample.untrusted_text,
            untrusted_detail=sample.untrusted_detail,
        )
        for attempt, sample in of_training(workspace, view)
    ]
    return sorted(samples, key=lambda sample: -sample.step)[:_MOST_SAMPLES]


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
