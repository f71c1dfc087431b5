"""What the page shows, by the functions that answer commands and tools; from what is on record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer_runtime import __version__
from trainer_runtime.core.protocol.command import command
from trainmaster.answers.board import (
    BoardAnswer,
    BoardComparisonAnswer,
    BoardCurve,
    BoardCurvesAnswer,
    BoardMachinesAnswer,
    BoardMark,
    BoardPanel,
    BoardPatch,
    BoardRunAnswer,
)
from trainmaster.answers.diagnosis import FindingAnswer
from trainmaster.answers.metrics import MetricSeries
from trainmaster.answers.plot import Axis
from trainmaster.board.comparison import comparison_of
from trainmaster.board.run_parts import board_checkpoints, board_samples, board_settings
from trainmaster.errors.errors import UsageError
from trainmaster.machines.host_registry import list_hosts
from trainmaster.machines.renting.costs import list_costs
from trainmaster.metrics.compare import compare_metrics
from trainmaster.metrics.plots.curves import Mark, marks_of
from trainmaster.metrics.plots.panels import MOST_PANELS, Panel, panels_among
from trainmaster.metrics.selection import Selection
from trainmaster.metrics.sources import RunSource
from trainmaster.metrics.telemetry import is_telemetry
from trainmaster.runs.diagnose import diagnosis_of
from trainmaster.runs.events.watch import Watch
from trainmaster.runs.log.logs import last_lines
from trainmaster.runs.metrics.plot import MOST_RUNS
from trainmaster.runs.overview.overview import overview_on_record
from trainmaster.runs.status.status import whole_status
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace

# Ended runs fill up what open ones leave.
_RUNS = 100
_LINES = 40
_POINTS = 400
_MOST_KEYS = 500
_MOST_MARKS = 200


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
