"""`plot`: draws runs and log files into a PNG, or as text."""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path

from trainer_runtime.core.files.private import share
from trainmaster.answers.plot import Axis, PlotAnswer
from trainmaster.calls.work_thread import in_thread
from trainmaster.errors.errors import HostError, UsageError
from trainmaster.home.extras import installing
from trainmaster.home.run_names import exact_names
from trainmaster.metrics.log_file import log_file
from trainmaster.metrics.log_file_metrics import FileMetrics
from trainmaster.metrics.plots.curves import RunCurves, curves_of
from trainmaster.metrics.plots.panels import MOST_PANELS, STANDARD_KEYS, Panel, panels_of
from trainmaster.metrics.plots.sketch import Line, Points, Span, letter, plain, sketch
from trainmaster.metrics.read_file import read_file
from trainmaster.metrics.sources import part_read
from trainmaster.metrics.telemetry import TELEMETRY
from trainmaster.metrics.wanted import Wanted
from trainmaster.store.buckets import Row
from trainmaster.sync.refresh import refresh
from trainmaster.sync.workspace import Workspace

MOST_RUNS = 20
_MOST_KEYS = 40
_MOST_MARKS = 12


async def plot_runs(
    workspace: Workspace,
    runs: Sequence[str],
    path: Path | None = None,
    *,
    keys: Sequence[str] = (),
    axis: Axis = "step",
) -> PlotAnswer:
    """Draw runs or log files into a PNG at `path`, replacing an existing one atomically;
    without a path below the home.

    Without `keys`: loss with its lows and highs, val_loss, lr, grad_norm, throughput, and what the
    machine was doing; with restarts and findings, of one run also phases and checkpoints.

    Raises:
        StateError: `RUN_NOT_FOUND`.
        UsageError: `BAD_ARGUMENT` for a key that no run has, or a path that can't be written;
            `LOG_NOT_READABLE`; `PACKAGE_MISSING` without matplotlib.
    """
    if path is not None:
        refuse_other_than_png(path)
    answer, drawn, panels = await draw_runs(workspace, runs, keys=keys, axis=axis)
    written = path or _own_path(workspace, [run.run_id for run in drawn])
    size_bytes = await write_png(written, drawn, panels)
    return answer.model_copy(update={"path": str(written), "size_bytes": size_bytes})


def refuse_other_than_png(path: Path) -> None:
    """Raises: UsageError: `BAD_ARGUMENT`, the file would be no PNG."""
    if path.suffix.lower() != ".png":
        raise UsageError(
            "BAD_ARGUMENT",
            f"{path} is not a PNG.",
            "Give a path that ends in .png.",
            field="output",
        )


async def write_png(path: Path, drawn: Sequence[RunCurves], panels: Sequence[Panel]) -> int:
    """Draw the panels into a file, replacing an existing one atomically; its size in bytes.

    Raises:
        UsageError: `PACKAGE_MISSING` without matplotlib, `BAD_ARGUMENT` without its folder.
        HostError: `ROOT_NOT_WRITABLE`.
    """
    picture = await in_thread(_png, drawn, panels)
    _write(path, picture)
    return len(picture)


async def sketch_runs(
    workspace: Workspace,
    runs: Sequence[str],
    *,
    keys: Sequence[str] = (),
    axis: Axis = "step",
    dots: bool = False,
    width: int = 64,
) -> tuple[PlotAnswer, list[Line]]:
    """Draw them as text, the first key unless `keys` are named; `dots`: finer, for
    terminals. The answer's `lines` are their plain text.

    Raises: as `plot_runs`.
    """
    answer, drawn, panels = await draw_runs(workspace, runs, keys=keys, axis=axis)
    lines: list[Line] = []
    for panel in panels if keys else panels[:1]:
        lines += sketched(panel, drawn, dots=dots, width=width)
    return answer.model_copy(update={"lines": [plain(line) for line in lines]}), lines


async def draw_runs(
    workspace: Workspace, runs: Sequence[str], *, keys: Sequence[str], axis: Axis
) -> tuple[PlotAnswer, list[RunCurves], list[Panel]]:
    """The curves of the runs or log files for `keys`, and their panels."""
    if not runs:
        raise UsageError("BAD_ARGUMENT", "No run is named.", "Name one or several.", field="run_id")
    _check_count("runs", runs, MOST_RUNS)
    _check_count("keys", keys, MOST_PANELS)
    drawn, all_keys, marks = [], set[str](), dict[str, list[str]]()
    for name in dict.fromkeys(runs):
        with exact_names(len(runs) > 1):
            curves, its_keys, unread = await _curves(workspace, name, keys or STANDARD_KEYS, axis)
        all_keys.update(its_keys)
        drawn.append(curves)
        if marked := [*_marks(curves), *unread]:
            marks[curves.run_id] = marked
    for key in keys:
        if all_keys and key not in all_keys and key not in (*STANDARD_KEYS, *TELEMETRY):
            raise UsageError(
                "BAD_ARGUMENT",
                f"None of the runs has a metric {key!r}.",
                f"They have {', '.join(sorted(all_keys)[:_MOST_KEYS])}.",
                field="key",
            )
    panels = panels_of(drawn, keys, axis) or panels_of(drawn, ("loss",), axis)
    answer = PlotAnswer(
        runs={run.run_id: run.points for run in drawn},
        keys=list(dict.fromkeys(key for panel in panels for key in panel.keys)),
        marks=marks or None,
    )
    return answer, drawn, panels


async def _curves(
    workspace: Workspace, name: str, keys: Sequence[str], axis: Axis
) -> tuple[RunCurves, Sequence[str], Sequence[str]]:
    """The curves of a run or a log file, the keys of all its metrics, and what is not drawn."""
    file = log_file(workspace, name)
    if file is not None:
        wanted = Wanted(frozenset((*keys, "tokens")), times=axis == "time")
        metrics = await read_file(file, wanted)
        unread = [part_read(metrics)] if metrics.left_out_bytes else []
        return curves_of_file(name, metrics, keys, axis), metrics.keys(), unread
    view = await refresh(workspace, name)
    return curves_of(workspace, view, keys, axis), workspace.metrics.keys(view.run.run_id), ()


def _own_path(workspace: Workspace, run_ids: Sequence[str]) -> Path:
    others = f"-and-{len(run_ids) - 1}" if len(run_ids) > 1 else ""
    path = workspace.home.plot(f"{Path(run_ids[0]).name}{others}")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _check_count(what: str, names: Sequence[str], most: int) -> None:
    if len(names) > most:
        raise UsageError(
            "BAD_ARGUMENT", f"{len(names)} {what} in one picture.", f"Name at most {most}."
        )


def _marks(run: RunCurves) -> list[str]:
    marks = [
        f"{mark.kind} {mark.label}" + ("" if mark.x is None else f" at {mark.x:g}")
        for mark in run.marks
        if mark.kind != "checkpoint"
    ]
    return marks[-_MOST_MARKS:]


def _png(curves: Sequence[RunCurves], panels: Sequence[Panel]) -> bytes:
    try:
        from trainmaster.metrics.plots.figure import png_of
    except ImportError as error:
        raise UsageError(
            "PACKAGE_MISSING",
            f"Pictures are drawn with matplotlib, which can't be used here ({error}).",
            f"{installing('plot')}, or plot into the terminal, without a file.",
        ) from error
    return png_of(curves, panels, " · ".join(run.run_id for run in curves[:4]))


def _write(path: Path, picture: bytes) -> None:
    """Raises: UsageError, HostError, where the file can't be written; nothing is left then."""
    if not path.parent.is_dir():
        raise UsageError(
            "BAD_ARGUMENT",
            f"The folder {path.parent} does not exist.",
            "Make it first, or name another file.",
            field="output",
        )
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".png", delete=False) as file:
            temporary = Path(file.name)
            file.write(picture)
        share(temporary)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise HostError(
            "ROOT_NOT_WRITABLE",
            f"{path} can't be written: {error.strerror}.",
            "Name a file in a folder of yours.",
            field="output",
        ) from error


def sketched(
    panel: Panel, run_curves: Sequence[RunCurves], *, dots: bool, width: int
) -> list[Line]:
    """A panel's lines: its name, its curves, and a legend where there are several."""
    named = [(run, key) for run in run_curves for key in panel.keys if key in run.series]
    title = [Span(f"{panel.title} over {panel.x_label}")]
    marks = []
    if len(run_curves) == 1:
        marks = [
            at
            for mark in run_curves[0].marks
            if mark.kind != "checkpoint" and (at := panel.place(mark)) is not None
        ]
    curves = [panel.along(run.series[key]) for run, key in named]
    drawn = sketch(curves, dots=dots, width=width, marks=marks)
    several = named if len(named) > 1 else []
    legend = [
        _legend(index, len(named), f"{run.run_id} {key}")
        for index, (run, key) in enumerate(several)
    ]
    return [title, *drawn, *legend]


def _legend(index: int, among: int, name: str) -> Line:
    return [Span(f"{'':>11}"), Span(letter(index, among), index), Span(f" {name}")]


def curves_of_file(
    name: str, metrics: FileMetrics, keys: Sequence[str], axis: Axis = "step"
) -> RunCurves:
    """The curves of a log, one value per step. Where its steps go back, the earlier points from
    there on are superseded, as for a restarted run.

    Raises:
        UsageError: `BAD_ARGUMENT`, the log lacks the axis.
    """
    place = _placing(name, metrics, axis)
    series: dict[str, Points] = {}
    for key in keys:
        live = _live(metrics.series(key).extremes())
        points = [(at, row[2]) for row in live if (at := place(row)) is not None]
        if points:
            series[key] = points
    return RunCurves(name, series, ())


def _placing(name: str, metrics: FileMetrics, axis: Axis) -> Callable[[Row], float | None]:
    """Places points on the axis, `time` in minutes since the first point; None if unknown."""
    if axis == "step" or not metrics.keys():
        return lambda row: row[0]
    if axis == "time":
        began = metrics.oldest_t
        if began is None:
            raise _missing_axis(f"The lines of {name} carry no times.")
        return lambda row: None if row[1] is None else (row[1] - began) / 60.0
    token_rows = _live(metrics.rows("tokens"))
    if not token_rows:
        raise _missing_axis(f"{name} reports no tokens.")
    steps = [row[0] for row in token_rows]

    def tokens(row: Row) -> float | None:
        index = bisect_right(steps, row[0]) - 1
        return token_rows[index][2] if index >= 0 else None

    return tokens


def _live(rows: Sequence[Row]) -> list[Row]:
    live: list[Row] = []
    for row in rows:
        while live and live[-1][0] >= row[0]:
            live.pop()
        live.append(row)
    return live


def _missing_axis(message: str) -> UsageError:
    return UsageError("BAD_ARGUMENT", message, "Plot it over steps.", field="x")
