"""Answers about metrics, of runs and of log files."""

from typing import Any

from trainmaster.answers.base import Answer, Number, RecordedAnswer
from trainmaster.answers.fields import field


class MetricSeries(Answer):
    """One key of one run: a summary over all points, and the requested number of points.

    Downsampled series hold each bucket's mean in `values`, with its `lows` and `highs`; those of
    evaluations (val_loss, ...) hold values that were measured, at their steps.
    """

    sampled = True

    n: int
    first: Number | None = None
    last: Number | None = None
    min: Number | None = None
    min_step: int | None = None
    max: Number | None = None
    max_step: int | None = None
    steps: list[int]
    x: list[Number] | None = field(
        default=None, description="the points' places in tokens, or in seconds since the beginning"
    )
    values: list[Number]
    lows: list[Number] | None = None
    highs: list[Number] | None = None
    nonfinite: int | None = None


class BestRun(Answer):
    """The best finite value of a metric among the compared runs."""

    run: str
    step: int
    value: Number


class Ranking(Answer):
    """Runs by their best value of a metric, the best first.

    `labels`: where runs were chosen by a label, the others by which they differ.
    """

    runs: list[str]
    steps: list[int]
    values: list[Number]
    labels: list[dict[str, str]] | None = None


class LastValues(Answer):
    """The last value of each series: a column per key, a row per run, the best first by `by`.

    `same`: keys of which all runs have the same value.
    """

    by: str | None = None
    runs: list[str]
    last: dict[str, list[int | Number | None]]
    same: dict[str, int | Number | None] | None = None
    omitted: int | None = field(default=None, description="runs that are not shown")


class LogCoverage(Answer):
    """What was understood of a log file, and how much of it."""

    read_share: float = field(description="parsed share of the lines with numbers, 0 to 1")
    form: str | None = field(default=None, description="of its lines, as a framework writes them")
    keys: list[str] | None = field(default=None, description="the first of its metrics")
    first_step: int | None = None
    last_step: int | None = None
    target_step: int | None = None
    ended: bool | None = field(default=None, description="by closing lines or its last step")
    too_long: int | None = field(default=None, description="lines that were skipped")
    other_ranks: int | None = field(default=None, description="number of omitted ranks")
    untrusted_pattern: str | None = field(
        default=None, description="drafted from such a line, for `pattern`"
    )
    untrusted_samples: list[str] | None = field(
        default=None, description="lines with numbers, where none was understood"
    )


class PhaseTable(Answer):
    """A row per phase: its steps, and of those that are done the losses, tokens and rates.

    `mix`: by source, its share of the sequences drawn, once the phase has ended.
    """

    phase: list[str]
    first_step: list[int]
    last_step: list[int]
    n: list[int]
    first: list[Number | None]
    last: list[Number | None]
    min: list[Number | None]
    tokens: list[int]
    lr_low: list[Number | None]
    lr_high: list[Number | None]
    mix: dict[str, list[float | None]] | None = None


class MetricsAnswer(RecordedAnswer):
    """`table` stands in the place of `runs` where a summary of many series was asked for."""

    runs: dict[str, dict[str, MetricSeries]]
    table: LastValues | None = None
    form: str | None = field(
        default=None, description="how the values are computed, if not the metric's own"
    )
    best: dict[str, BestRun] | None = None
    ranking: dict[str, Ranking] | None = None
    coverage: dict[str, LogCoverage] | None = None
    differences: dict[str, dict[str, Any]] | None = field(
        default=None, description="settings that not all runs have alike"
    )
    phases: PhaseTable | None = field(default=None, description="of one run")
    notes: list[str] | None = None
