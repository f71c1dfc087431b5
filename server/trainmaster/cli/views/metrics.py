"""What people see of metrics: their grid, who is best, and what they should know."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from trainer_runtime.core.protocol.curve import sparkline
from trainer_runtime.core.protocol.figures import number_text, share_text
from trainmaster.answers.metrics import LogCoverage, MetricsAnswer, PhaseTable
from trainmaster.cli.views.blocks import Block, Grid, figure, view

_CURVE_WIDTH = 48


@view.register
def _(answer: MetricsAnswer) -> list[Block]:
    labels = distinct_labels(list(answer.runs))
    rows = [
        (
            labels[run],
            key,
            sparkline(_thinned(series.values)),
            *(figure(item) for item in (series.first, series.last, series.min, series.max)),
            number_text(series.n),
        )
        for run, by_key in answer.runs.items()
        for key, series in by_key.items()
    ]
    metric = "metric" if answer.form is None else f"metric ({answer.form})"
    grid = Grid(("run", metric, "curve", "first", "last", "min", "max", "points"), rows)
    grids: list[Block] = [grid] if rows else []
    if answer.phases is not None:
        grids.append(_phases(answer.phases))
    return [*grids, *ranked_runs(answer), *remarks(answer)] or ["No points yet."]


def _phases(table: PhaseTable) -> Grid:
    """A row per phase, with the realised mix of those that have ended."""
    mix = table.mix or {}
    rows = [
        (
            name,
            f"{number_text(table.first_step[at])}–{number_text(table.last_step[at])}",
            *(figure(column[at]) for column in (table.first, table.last, table.min)),
            number_text(table.tokens[at]),
            " to ".join(dict.fromkeys(map(figure, (table.lr_low[at], table.lr_high[at])))),
            "  ".join(
                f"{source} {share_text(share, 1)}"
                for source, shares in mix.items()
                if (share := shares[at]) is not None
            ),
        )
        for at, name in enumerate(table.phase)
    ]
    columns = ("phase", "steps", "loss first", "last", "min", "tokens", "lr", "mix")
    return Grid(columns, rows)


def distinct_labels(names: Sequence[str]) -> dict[str, str]:
    """Names that fit into a column: of paths the last part, and where others end alike, also what
    comes before it."""
    parts = {name: PurePath(name).parts for name in names}
    labels = {}
    for name, mine in parts.items():
        depth = 1
        while depth < len(mine) and any(
            other[-depth:] == mine[-depth:] for label, other in parts.items() if label != name
        ):
            depth += 1
        labels[name] = "/".join(mine[-depth:]) if "/" in name else name
    return labels


def _thinned(values: Sequence[object]) -> Sequence[object]:
    """As many as a line has room for, evenly, the last one among them."""
    most = min(len(values), _CURVE_WIDTH)
    return [values[(at + 1) * len(values) // most - 1] for at in range(most)]


def ranked_runs(answer: MetricsAnswer) -> list[str]:
    """The best run of those compared, and of all runs the best few, by metric."""
    best = [
        f"Best {key}: {number_text(item.value)} at step {number_text(item.step)} of {item.run}"
        for key, item in (answer.best or {}).items()
    ]
    for key, ranking in (answer.ranking or {}).items():
        best.append(f"Best {key}:")
        labels = [
            _labelled(labels_of_run) for labels_of_run in ranking.labels or [{}] * len(ranking.runs)
        ]
        rows = zip(ranking.runs, ranking.steps, ranking.values, labels, strict=True)
        best += [
            f"- {number_text(value)} at step {number_text(step)} of {run}{by}"
            for run, step, value, by in rows
        ]
    return best


def _labelled(labels: Mapping[str, str]) -> str:
    named = ", ".join(f"{name}={text}" for name, text in labels.items())
    return f" ({named})" if named else ""


def understood(coverage: LogCoverage) -> str:
    """What was understood of a log, in words."""
    form = "" if coverage.form is None else f" ({coverage.form})"
    if coverage.last_step is None:
        return form
    target = "" if coverage.target_step is None else f" of {number_text(coverage.target_step)}"
    ended = {True: ", ended", False: ", not ended", None: ""}[coverage.ended]
    steps = f"steps {number_text(coverage.first_step)} to {number_text(coverage.last_step)}"
    return f"{form}: {steps}{target}{ended}"


def remarks(answer: MetricsAnswer) -> list[str]:
    """How much of a log was read, and the notes."""
    read = [
        f"Read {share_text(coverage.read_share)} of the lines with numbers in {name}"
        + understood(coverage)
        + ("" if coverage.too_long is None else f", passed over {coverage.too_long} too long ones")
        + ("" if coverage.other_ranks is None else f"; {coverage.other_ranks} more ranks are there")
        for name, coverage in (answer.coverage or {}).items()
    ]
    samples = [
        f"  > {line}"
        for coverage in (answer.coverage or {}).values()
        for line in coverage.untrusted_samples or ()
    ]
    if samples:
        samples.insert(0, "Not understood, for example:")
    drafts = [
        words for coverage in (answer.coverage or {}).values() for words in drafted_words(coverage)
    ]
    unlike = [
        f"{path}: {', '.join(f'{value} in {run}' for run, value in values.items())}"
        for path, values in (answer.differences or {}).items()
    ]
    return [*unlike, *read, *(answer.notes or []), *samples, *drafts]


def drafted_words(coverage: LogCoverage) -> list[str]:
    """The option that would teach such a line."""
    pattern = coverage.untrusted_pattern
    return [] if pattern is None else [f"For example: --pattern {shlex.quote(pattern)}"]
