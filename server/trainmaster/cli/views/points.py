"""The points of metrics as lines: for people, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from trainer_runtime.core.protocol.figures import number_text
from trainmaster.answers.metrics import MetricsAnswer, MetricSeries

_COLUMNS = ("run", "metric", "step", "value")


def csv_lines(answer: MetricsAnswer) -> Iterator[str]:
    """A line for each point, the numbers in full; a header first."""
    for row in (_COLUMNS, *_rows(answer)):
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(row)
        yield line.getvalue()


def point_lines(answer: MetricsAnswer) -> Iterator[str]:
    """For each series a title, and under it a line for each point."""
    for run, by_key in answer.runs.items():
        for key, series in by_key.items():
            yield f"{run} {key}, {series.n:,} points"
            yield from (f"{step:>12,}  {_shown(value)}" for step, value in _points(series))
    yield from answer.notes or ()


def _rows(answer: MetricsAnswer) -> Iterator[tuple[str, str, object, object]]:
    for run, by_key in answer.runs.items():
        for key, series in by_key.items():
            yield from ((run, key, step, value) for step, value in _points(series))


def _points(series: MetricSeries) -> Iterator[tuple[int, object]]:
    return zip(series.steps, series.values, strict=True)


def _shown(value: object) -> str:
    return number_text(value)
