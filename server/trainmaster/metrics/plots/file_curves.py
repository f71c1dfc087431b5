"""The curves of a log file over one axis."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from trainmaster.answers.plot import Axis
from trainmaster.errors.errors import UsageError
from trainmaster.metrics.log_file_metrics import FileMetrics
from trainmaster.metrics.plots.curves import RunCurves
from trainmaster.metrics.plots.sketch import Points
from trainmaster.store.buckets import Row


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
