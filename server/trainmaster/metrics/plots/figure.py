"""Panels as a PNG. The one module that imports matplotlib."""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter

from trainmaster.metrics.plots.buckets import Buckets, broken, bucketed
from trainmaster.metrics.plots.curves import Mark, RunCurves, is_telemetry
from trainmaster.metrics.plots.panels import Panel

# Distinguishable with colour blindness: https://jfly.uni-koeln.de/color.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F")
_GREY, _CRITICAL, _WARNING = "#777777", "#B00020", "#B8860B"
_MOST_COLUMNS = 400
_MOST_LABELS = 6
_LABEL_WIDTH = 0.014  # of the first panel's
# From this ratio of the largest to the least value on, a straight axis shows only the largest.
_LOGARITHMIC_FROM = 60.0
_COUNTED_FROM = 10_000.0
_DPI = 100
_ONE_AT_A_TIME = threading.Lock()  # the style is the whole process's
_STYLE: dict[Any, Any] = {
    "text.parse_math": False,  # a dollar sign in a key is a dollar sign
    "font.size": 9.0,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


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
    axes.set_title(panel.title, loc="left", fontsize=9)
    axes.set_xlabel(panel.x_label)
    drawn: list[Buckets] = []
    for run_index, run in enumerate(runs):
        for key_index, key in enumerate(panel.keys):
            if key in run.series:
                colour = _COLOURS[(run_index if len(runs) > 1 else key_index) % len(_COLOURS)]
                label = key if len(runs) == 1 else f"{run.run_id} {key}"
                buckets = bucketed(panel.along(run.series[key]), _MOST_COLUMNS)
                shown = broken(buckets) if panel.moments else buckets
                _draw_curve(axes, shown, colour, label, dashed=key_index > 0)
                drawn.append(buckets)
    _scale(axes, panel, drawn)
    if not any(buckets.x or buckets.nonfinite for buckets in drawn):
        axes.text(0.5, 0.5, "no points yet", ha="center", color=_GREY, transform=axes.transAxes)
        return
    _draw_marks(axes, panel, runs, first=first)
    if first and len(runs) * len(panel.keys) > 1:
        axes.legend(loc="best", fontsize=8)


def _draw_curve(axes: Axes, buckets: Buckets, colour: str, label: str, *, dashed: bool) -> None:
    few = len(buckets.x) <= 60
    axes.plot(
        buckets.x,
        buckets.mean,
        color=colour,
        linewidth=1.3,
        linestyle="--" if dashed else "-",
        marker="o" if dashed or len(buckets.x) == 1 else None,
        markersize=3.0 if few else 1.5,
        label=label,
    )
    if list(buckets.low) != list(buckets.high):
        axes.fill_between(buckets.x, buckets.low, buckets.high, color=colour, alpha=0.2, lw=0)
    if buckets.nonfinite:
        axes.plot(
            buckets.nonfinite,
            [0.97] * len(buckets.nonfinite),
            "x",
            color=_CRITICAL,
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
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    elif max(highs) >= _COUNTED_FROM:
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))


def _draw_marks(axes: Axes, panel: Panel, runs: Sequence[RunCurves], *, first: bool) -> None:
    """Restarts and findings, with their names in the first panel; there also the checkpoints, where
    there is one run alone."""
    for run_index, run in enumerate(runs):
        placed = list(_placed(run.marks, panel))
        for at, mark in placed:
            if mark.kind == "restart":
                colour = _GREY if len(runs) == 1 else _COLOURS[run_index % len(_COLOURS)]
                axes.axvline(at, color=colour, linewidth=0.8, linestyle=":")
            elif mark.kind == "finding":
                axes.axvline(at, color=_CRITICAL if mark.critical else _WARNING, linewidth=0.9)
        if first and len(runs) == 1:
            _draw_checkpoints(axes, [at for at, mark in placed if mark.kind == "checkpoint"])
        if first:
            _label(axes, [(at, mark) for at, mark in placed if mark.kind != "checkpoint"])


def _placed(marks: Iterable[Mark], panel: Panel) -> Iterator[tuple[float, Mark]]:
    for mark in marks:
        at = panel.place(mark)
        if at is not None:
            yield at, mark


def _draw_checkpoints(axes: Axes, found: Sequence[float]) -> None:
    if found:
        axes.plot(
            found,
            [0.0] * len(found),
            "^",
            color=_COLOURS[2],
            markersize=5.0,
            clip_on=False,
            transform=axes.get_xaxis_transform(),
            label="verified checkpoint",
        )


def _label(axes: Axes, placed: Sequence[tuple[float, Mark]]) -> None:
    """Each left of its line; right of it at the left edge, or where another label is."""
    taken: list[float] = []
    for at, mark in sorted(placed[-_MOST_LABELS:], key=lambda one: one[0]):
        share = float(axes.transLimits.transform((at, 0.0))[0])
        sides = [(share - _LABEL_WIDTH, "right", -2.0), (share, "left", 2.0)]
        free = [side for side in sides if _is_free(side[0], taken)]
        if not free:
            continue  # its line stands, and the answer names it
        begin, towards, offset = free[0]
        taken.append(begin)
        colour = _GREY
        if mark.kind == "finding":
            colour = _CRITICAL if mark.critical else _WARNING
        axes.annotate(
            mark.label,
            (at, 0.98),
            xytext=(offset, 0.0),
            textcoords="offset points",
            xycoords=axes.get_xaxis_transform(),
            rotation=90,
            ha=towards,
            va="top",
            fontsize=7,
            color=colour,
        )


def _is_free(begin: float, taken: Sequence[float]) -> bool:
    """Whether a label that begins at this share of the width fits without overlap."""
    inside = 0.0 <= begin <= 1.0 - _LABEL_WIDTH
    return inside and all(abs(begin - other) >= _LABEL_WIDTH for other in taken)


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
