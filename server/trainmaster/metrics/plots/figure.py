"""Panels as a PNG. The one module that imports matplotlib."""

from __future__ import annotations

import io
import math
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter

from trainmaster.metrics.downsample import is_evaluation
from trainmaster.metrics.plots.curves import Mark, RunCurves
from trainmaster.metrics.plots.palette import LIGHT
from trainmaster.metrics.plots.panels import Panel
from trainmaster.metrics.plots.sketch import Points
from trainmaster.metrics.telemetry import is_telemetry

# An interval is usual up to this quantile: logging may become less frequent later.
_USUAL, _PAUSE, _FEWEST_GAPS = 0.9, 10.0, 4
_COLOURS, _MARKS = LIGHT.series, LIGHT.marks
# What distinguishes curves besides their colours: as on the board, no two of 20 runs are alike.
_DASHES: tuple[Any, ...] = ("-", (0, (6, 3)), (0, (1.5, 2)), (0, (7, 2, 1.5, 2)))
_SHAPES = ("o", "s", "^", "D", "v")
_SHAPES_A_CURVE = 6
_MOST_COLUMNS = 400
_MOST_LABELS = 8
# Of the names of marks above the first panel, in points: rows, characters, what is between two.
_LABEL_ROWS, _ROW_HEIGHT, _CHARACTER_WIDTH, _LABEL_GAP = 3, 10.0, 4.9, 6.0
_SIGNS = {"restart": "↻", "phase": "▸", "finding": "▲"}
_LINES: dict[str, Any] = {
    "restart": {"linewidth": 1.0, "linestyle": (0, (2, 2.5))},
    "phase": {"linewidth": 0.9, "linestyle": (0, (7, 4))},
    "finding": {"linewidth": 1.0},
}
# From this ratio of the largest to the least value on, a straight axis shows only the largest.
_LOGARITHMIC_FROM = 60.0
_COUNTED_FROM = 10_000.0
_LEAST_PLAIN = 1e-3
_DPI = 100
_ONE_AT_A_TIME = threading.Lock()  # the style is the whole process's
_STYLE: dict[Any, Any] = {
    "text.parse_math": False,  # a dollar sign in a key is a dollar sign
    "font.size": 9.0,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": LIGHT.grid,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.edgecolor": LIGHT.faint,
    "axes.labelcolor": LIGHT.faint,
    "text.color": LIGHT.ink,
    "xtick.color": LIGHT.faint,
    "ytick.color": LIGHT.faint,
    "ytick.major.size": 0.0,
    "legend.edgecolor": "none",
    "legend.framealpha": 0.85,
}


@dataclass(frozen=True, slots=True)
class _Style:
    """Of one curve: `shape` stands on it at places of its own (`share` of the way from one to the
    next), so that curves which coincide are all seen; `marked`: on a line too."""

    colour: str
    dash: Any
    shape: str
    marked: bool
    share: float

    @classmethod
    def of(cls, number: int, *, several: bool) -> _Style:
        """That of the run, or of one run's key, with this number."""
        return cls(
            _COLOURS[number % len(_COLOURS)],
            _DASHES[number % len(_DASHES)],
            _SHAPES[number % len(_SHAPES)] if several else _SHAPES[0],
            several,
            number % len(_SHAPES) / len(_SHAPES),
        )


def png_of(runs: Sequence[RunCurves], panels: Sequence[Panel], title: str) -> bytes:
    """The panels, each with all runs; a panel without points says so.

    The first is as wide as the picture, the others stand in pairs below it.
    """
    with _ONE_AT_A_TIME, rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of characters that the font lacks
        buffer = io.BytesIO()
        figure_of(runs, panels, title).savefig(buffer, format="png")
    return _with_fewer_colours(buffer)


def figure_of(runs: Sequence[RunCurves], panels: Sequence[Panel], title: str) -> Figure:
    """The figure, drawn in the current style."""
    rows = 1 + len(panels) // 2
    figure = Figure(figsize=(10.0, 2.0 + 1.9 * rows), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    for index, axes in enumerate(_axes(figure, len(panels))):
        _draw_panel(axes, panels[index], runs, first=index == 0)
    return figure


def _axes(figure: Figure, count: int) -> Iterator[Axes]:
    rows = 1 + count // 2
    grid = figure.add_gridspec(rows, 2, height_ratios=[1.9, *([1.0] * (rows - 1))])
    yield figure.add_subplot(grid[0, :])
    for index in range(count - 1):
        alone = index == count - 2 and index % 2 == 0
        row, column = 1 + index // 2, index % 2
        yield figure.add_subplot(grid[row, :] if alone else grid[row, column])


def _draw_panel(axes: Axes, panel: Panel, runs: Sequence[RunCurves], *, first: bool) -> None:
    axes.set_xlabel(panel.x_label)
    drawn: list[Buckets] = []
    for run_index, run in enumerate(runs):
        for key_index, key in enumerate(panel.keys):
            if key in run.series:
                style = _Style.of(run_index if len(runs) > 1 else key_index, several=len(runs) > 1)
                label = key if len(runs) == 1 else f"{run.run_id} {key}"
                buckets = bucketed(panel.along(run.series[key]), _MOST_COLUMNS)
                shown = broken(buckets) if panel.moments else buckets
                _draw_curve(axes, shown, style, label, dots=is_evaluation(key))
                drawn.append(buckets)
    _scale(axes, panel, drawn)
    is_empty = not any(buckets.x or buckets.nonfinite for buckets in drawn)
    rows = 0 if is_empty else _draw_marks(axes, panel, runs, first=first)
    axes.set_title(
        panel.title, loc="left", fontsize=9, fontweight="bold", pad=6.0 + _ROW_HEIGHT * rows
    )
    if is_empty:
        middle = axes.transAxes
        axes.text(0.5, 0.5, "no points yet", ha="center", color=LIGHT.faint, transform=middle)
        return
    if (first or len(runs) == 1) and len(runs) * len(panel.keys) > 1:
        axes.legend(loc="best", fontsize=8)


def _draw_curve(axes: Axes, buckets: Buckets, style: _Style, label: str, *, dots: bool) -> None:
    """A line; of evaluations dots, with a thin line between them."""
    few, colour, count = len(buckets.x) <= 60, style.colour, len(buckets.x)
    every = max(1, count // _SHAPES_A_CURVE)
    axes.plot(
        buckets.x,
        buckets.mean,
        color=colour,
        linewidth=0.9 if dots else 1.5,
        linestyle=(0, (2, 2)) if dots else style.dash,
        marker=style.shape if dots or style.marked or count == 1 else None,
        markevery=1
        if dots
        else (min(int(style.share * every), count - 1), every)
        if count
        else None,
        markersize=4.5 if few or not dots else 2.0,
        markeredgecolor=LIGHT.ground,
        markeredgewidth=0.7,
        label=label,
    )
    if list(buckets.low) != list(buckets.high):
        axes.fill_between(buckets.x, buckets.low, buckets.high, color=colour, alpha=0.16, lw=0)
    if buckets.nonfinite:
        axes.plot(
            buckets.nonfinite,
            [0.97] * len(buckets.nonfinite),
            "x",
            color=_MARKS["critical"],
            markersize=5.0,
            transform=axes.get_xaxis_transform(),
            label=f"{label}: not finite",
        )


def _scale(axes: Axes, panel: Panel, drawn: Sequence[Buckets]) -> None:
    lows = [value for buckets in drawn for value in buckets.low]
    highs = [value for buckets in drawn for value in buckets.high]
    axes.margins(x=0.01)
    if max((buckets.x[-1] for buckets in drawn if buckets.x), default=0.0) >= _COUNTED_FROM:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if not lows:
        return
    if is_telemetry(panel.keys[0]):
        axes.set_ylim(0.0, 1.08 * max(*highs, 1e-9))  # a full scale: noise must not be magnified
    elif panel.keys[0] != "lr" and min(lows) > 0 and max(highs) > _LOGARITHMIC_FROM * min(lows):
        axes.set_yscale("log")
        form = "g" if min(lows) >= _LEAST_PLAIN else ".0e"
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:{form}}"))
    elif max(highs) >= _COUNTED_FROM:
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))


def _draw_marks(axes: Axes, panel: Panel, runs: Sequence[RunCurves], *, first: bool) -> int:
    """Restarts and findings, of one run alone also its phases, and in the first panel its
    checkpoints and the names of all; the rows of names."""
    named: list[tuple[float, Mark, str]] = []
    for run_index, run in enumerate(runs):
        own = None if len(runs) == 1 else _COLOURS[run_index % len(_COLOURS)]
        for at, mark in _placed(run.marks, panel):
            if mark.kind in _LINES and (own is None or mark.kind != "phase"):
                colour = _colour(mark, own)
                axes.axvline(at, color=colour, **_LINES[mark.kind])
                named.append((at, mark, colour))
        if first and own is None:
            placed = _placed(run.marks, panel)
            _draw_checkpoints(axes, [at for at, mark in placed if mark.kind == "checkpoint"])
    return _label(axes, named) if first else 0


def _colour(mark: Mark, own: str | None) -> str:
    """That of the kind of mark; of several runs, `own` is that of the run, for its restarts."""
    if mark.kind == "finding":
        return _MARKS["critical" if mark.critical else "warning"]
    return own or _MARKS[mark.kind]


def _placed(marks: Iterable[Mark], panel: Panel) -> Iterator[tuple[float, Mark]]:
    for mark in marks:
        at = panel.place(mark)
        if at is not None:
            yield at, mark


def _draw_checkpoints(axes: Axes, places: Sequence[float]) -> None:
    if places:
        axes.plot(
            places,
            [0.0] * len(places),
            "^",
            color=_MARKS["checkpoint"],
            markersize=5.0,
            clip_on=False,
            transform=axes.get_xaxis_transform(),
            label="verified checkpoint",
        )


def _label(axes: Axes, named: Sequence[tuple[float, Mark, str]]) -> int:
    """Names above the panel, each in the lowest row where it is free; the rows that have some."""
    width = 72.0 * 0.93 * axes.get_figure(root=True).get_figwidth()  # type: ignore[union-attr]
    ends: list[float] = []
    for at, mark, colour in sorted(named[-_MOST_LABELS:], key=lambda mark_place: mark_place[0]):
        place = width * float(axes.transLimits.transform((at, 0.0))[0])
        words = f"{_SIGNS[mark.kind]} {mark.label}"
        size = _CHARACTER_WIDTH * len(words)
        begin = max(0.0, min(place - 3.0, width - size))
        row = next((row for row, end in enumerate(ends) if end <= begin), len(ends))
        if not 0.0 <= place <= width or row == _LABEL_ROWS:
            continue  # its line stands, and the answer names it
        ends[row : row + 1] = [begin + size + _LABEL_GAP]
        axes.annotate(
            words,
            (at, 1.0),
            xytext=(begin - place, 3.0 + _ROW_HEIGHT * row),
            textcoords="offset points",
            xycoords=axes.get_xaxis_transform(),
            annotation_clip=False,
            fontsize=7.5,
            color=colour,
        )
    return len(ends)


def _with_fewer_colours(png: io.BytesIO) -> bytes:
    """The same picture with a palette: a third of the bytes without a visible difference."""
    from PIL import Image

    png.seek(0)
    reduced = io.BytesIO()
    with Image.open(png) as picture:
        picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(
            reduced, format="PNG", optimize=True
        )
    return reduced.getvalue()


@dataclass(frozen=True, slots=True)
class Buckets:
    """Columns of equal length. `nonfinite`: the x of values that are not finite."""

    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    nonfinite: Sequence[float]


def bucketed(points: Points, most: int) -> Buckets:
    """`points` (x, value), rising in x, in at most `most` columns of about equally many values."""
    finite = [(x, value) for x, value in points if math.isfinite(value)]
    parts = _parts(finite, most)
    return Buckets(
        x=[part[len(part) // 2][0] for part in parts],
        mean=[sum(value for _, value in part) / len(part) for part in parts],
        low=[min(value for _, value in part) for part in parts],
        high=[max(value for _, value in part) for part in parts],
        nonfinite=[x for x, value in points if not math.isfinite(value)],
    )


def broken(buckets: Buckets) -> Buckets:
    """With a hole wherever no point was reported for ten times the usual interval."""
    gaps = sorted(after - before for before, after in pairwise(buckets.x))
    if len(gaps) < _FEWEST_GAPS:
        return buckets
    longest = _PAUSE * gaps[int(_USUAL * (len(gaps) - 1))]
    holes = [
        index
        for index, (before, after) in enumerate(pairwise(buckets.x), start=1)
        if after - before > longest > 0
    ]
    if not holes:
        return buckets
    return Buckets(
        x=_with_holes(buckets.x, holes),
        mean=_with_holes(buckets.mean, holes),
        low=_with_holes(buckets.low, holes),
        high=_with_holes(buckets.high, holes),
        nonfinite=buckets.nonfinite,
    )


def _with_holes(column: Sequence[float], holes: Sequence[int]) -> list[float]:
    edges = [0, *holes, len(column)]
    parts = [list(column[start:end]) for start, end in pairwise(edges)]
    return [*parts[0], *(value for part in parts[1:] for value in (math.nan, *part))]


def _parts(points: Points, most: int) -> list[Points]:
    if len(points) <= most:
        return [[point] for point in points]
    return [points[len(points) * i // most : len(points) * (i + 1) // most] for i in range(most)]
