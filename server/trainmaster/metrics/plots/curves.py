"""The curves of a run over one axis, and the marks of its events."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trainer_runtime.core.protocol.text import code_word
from trainer_runtime.core.protocol.trainer_lines import PhaseChanged, trainer_line
from trainmaster.answers.plot import Axis
from trainmaster.metrics.plots.sketch import Points
from trainmaster.metrics.run_series import run_points
from trainmaster.metrics.telemetry import is_telemetry
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

MarkKind = Literal["checkpoint", "restart", "phase", "finding"]


@dataclass(frozen=True, slots=True)
class Mark:
    """An event. `x` is None where its place on the axis is unknown."""

    kind: MarkKind
    x: float | None
    minute: float
    label: str
    critical: bool = False


@dataclass(frozen=True, slots=True)
class RunCurves:
    """`series`: by key, (x, value) rising in x; x of telemetry is minutes."""

    run_id: str
    series: Mapping[str, Points]
    marks: Sequence[Mark]

    @property
    def points(self) -> int:
        return sum(map(len, self.series.values()))


def marks_of(workspace: Workspace, view: RunView) -> tuple[float, list[Mark]]:
    """When the first attempt began, and the events of a run over its steps."""
    place = _Placing(workspace, view, "step")
    return place.began_t, list(_marks(workspace, view, place))


def curves_of(
    workspace: Workspace, view: RunView, keys: Sequence[str], axis: Axis = "step"
) -> RunCurves:
    """The curves of a run, one value per step, and its events.

    `axis` `time` is minutes since the first attempt began, pauses included. Where a run doesn't
    report its tokens, they are computed from the tokens per step of its plan.
    """
    place = _Placing(workspace, view, axis)
    series: dict[str, Points] = {}
    for key in keys:
        points = run_points(workspace, view, key)
        if is_telemetry(key):
            placed: Points = [(place.minute(x / 1000.0), value) for x, value in points]
        else:
            placed = [(at, value) for x, value in points if (at := place.x(x)) is not None]
        if placed:
            series[key] = placed
    return RunCurves(view.run.run_id, series, tuple(_marks(workspace, view, place)))


class _Placing:
    """Places steps and times of a run on an axis."""

    def __init__(self, workspace: Workspace, view: RunView, axis: Axis) -> None:
        attempts = view.record.attempts
        self.began_t = attempts[0].starting_t if attempts else view.run.created_t
        # Tokens per step where the run doesn't report tokens, 1 where steps are the axis itself.
        self._per_step: float | None = 1.0 if axis == "step" else None
        self._steps: list[int] = []
        self._along: list[float] = []
        if axis == "tokens":
            self._take(run_points(workspace, view, "tokens"))
            if not self._steps:
                self._per_step = _tokens_per_step(view)
        elif axis == "time":
            moments = _moments(workspace, view)
            self._take((step, self.minute(t)) for step, t in moments)

    def minute(self, t: float) -> float:
        """Minutes from the first attempt's start to Unix time `t`, both by the host's clock."""
        return (t - self.began_t) / 60.0

    def x(self, step: int) -> float | None:
        """The place of a step, or that of the newest known step before it."""
        if self._per_step is not None:
            return step * self._per_step
        index = bisect_right(self._steps, step) - 1
        return self._along[index] if index >= 0 else None

    def _take(self, points: Iterable[tuple[int, float]]) -> None:
        for step, along in points:
            self._steps.append(step)
            self._along.append(along)


def _tokens_per_step(view: RunView) -> float | None:
    reported = [progress.described.get("tokens_per_step") for progress in view.attempts]
    return next((float(tokens) for tokens in reversed(reported) if tokens), None)


def _moments(workspace: Workspace, view: RunView) -> Iterable[tuple[int, float]]:
    """(step, Unix time) of the losses, the newest attempt's of each step."""
    times: dict[int, float] = {}
    for piece in workspace.metrics.series(view.run.run_id, "loss"):
        if piece.placement == view.run.placement:
            until = view.lineage.live_until(piece.attempt)
            for step, t, _ in workspace.metrics.points(piece.sid, until):
                if t is not None:
                    times[step] = t
    return sorted(times.items())


def _marks(workspace: Workspace, view: RunView, place: _Placing) -> Iterable[Mark]:
    for entry in view.index.entries:
        if entry.verified:
            yield Mark(
                "checkpoint", place.x(entry.step), place.minute(entry.time), f"step {entry.step}"
            )
    for attempt in view.record.attempts[1:]:
        began = view.started_at.get(attempt.number)
        if began is not None:
            label = f"attempt {attempt.number}: {attempt.why}"
            yield Mark("restart", place.x(began), place.minute(attempt.starting_t), label)
    yield from _phases(workspace, view, place)
    yield from _findings(view, place)


def _phases(workspace: Workspace, view: RunView, place: _Placing) -> Iterable[Mark]:
    """Where each phase of the training first began, as far as that was not superseded."""
    begun: dict[str, Mark] = {}
    for stored in workspace.metrics.events_of(view.run.run_id, view.run.placement, "phase"):
        line, event = trainer_line(stored.event), stored.event
        if not isinstance(line, PhaseChanged) or event.step is None:
            continue
        if view.lineage.is_live(stored.attempt, event.step):
            name = code_word(line.name)
            mark = Mark("phase", place.x(event.step), place.minute(event.t), name)
            begun.setdefault(name, mark)
    yield from begun.values()


def _findings(view: RunView, place: _Placing) -> Iterable[Mark]:
    """The supervisor's findings, and the trainer's warnings that no finding covers."""
    seen: set[tuple[str, int | None]] = set()
    for record in view.record.findings.values():
        finding = record.finding
        code, step = finding.code, finding.step
        seen.add((code, step))
        yield Mark(
            "finding",
            None if step is None else place.x(step),
            place.minute(record.opened_t),
            code,
            finding.severity == "critical",
        )
    for progress in view.attempts:
        for warning in progress.warnings:
            code, step = str(warning.code), warning.step
            if step is not None and (code, step) not in seen:
                yield Mark("finding", place.x(step), place.minute(warning.t), code, True)
