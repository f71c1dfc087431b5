"""Metrics of runs and files, alone or compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer_runtime.core.protocol.command import command, option
from trainmaster.answers.base import Number
from trainmaster.answers.metrics import BestRun, LastValues, MetricsAnswer, MetricSeries
from trainmaster.metrics.directions import is_better_higher, is_of_speed
from trainmaster.metrics.downsample import is_evaluation
from trainmaster.metrics.rank import Group
from trainmaster.metrics.selection import Axis, Selection, bad_argument
from trainmaster.metrics.series_query import Ruler, SeriesOptions, query_series
from trainmaster.metrics.sources import Source, wanted_keys
from trainmaster.metrics.telemetry import is_telemetry

# A summary is to stay within 250 tokens: each point of a series takes some 20.
_POINTS_OF_ALL, _FEWEST_POINTS = 6, 2
# A summary of more series is a table of their last values.
_MOST_SERIES = 3
_MOST_NAMED = 12
# Significant digits: the fewest where more of them would not fit.
_DIGITS = (4, 3)
# With the words around it 250 tokens: a column of numbers takes one for each two bytes or less.
_MOST_BYTES = 420


@dataclass(frozen=True, slots=True)
class _SourceQuery:
    """One source with its keys, and its ruler where an axis was selected."""

    source: Source
    keys: Sequence[str]
    ruler: Ruler | None


def compare_metrics(
    sources: Sequence[Source], keys: Sequence[str], max_points: int | None, selection: Selection
) -> MetricsAnswer:
    """The series of one or several sources; for several also which one has the best value.

    `max_points`: per series, None for all; 0 for as many as a summary has room for: of many series
    it is a table of their last values.

    Raises:
        UsageError: `BAD_ARGUMENT` for a key that a source doesn't have, or a selection that does
            not apply to it.
    """
    queries = [_source_query(source, keys, selection) for source in sources]
    answers = _series(queries, max_points, selection)
    coverages = {source.name: source.coverage() for source in sources}
    covered = {name: coverage for name, coverage in coverages.items() if coverage is not None}
    notes = [note for query in queries for note in _notes(query.source, query.keys)]
    notes += [note for source in sources for note in _empty(source, answers[source.name])]
    unlike = _unlike(sources)
    notes += [unlike] if unlike else []
    if max_points == 0 and sum(map(len, answers.values())) > _MOST_SERIES:
        return MetricsAnswer(
            runs={},
            table=last_values(answers, comparable=not unlike),
            form=selection.form,
            coverage=covered or None,
            notes=notes or None,
        )
    return MetricsAnswer(
        runs=answers,
        form=selection.form,
        best=(_best(answers, speed_alone=bool(unlike)) or None) if selection.rate is None else None,
        coverage=covered or None,
        notes=notes or None,
    )


def _source_query(source: Source, keys: Sequence[str], selection: Selection) -> _SourceQuery:
    wanted = wanted_keys(source, keys)
    ruler = None if selection.axis is None else _ruler(source, wanted, selection.axis)
    return _SourceQuery(source, wanted, ruler)


def _series(
    queries: Sequence[_SourceQuery], max_points: int | None, selection: Selection
) -> dict[str, dict[str, MetricSeries]]:
    """By source and key, the series; those of several sources are cut at the same places."""
    if max_points == 0:
        count = sum(len(query.keys) for query in queries)
        max_points = max(_FEWEST_POINTS, _POINTS_OF_ALL // max(1, count))
    ends = [query.ruler.end() for query in queries if query.ruler is not None]
    end = max(ends) if len(ends) > 1 else None
    answers: dict[str, dict[str, MetricSeries]] = {}
    for query in queries:
        source, by_key = query.source, answers.setdefault(query.source.name, {})
        for key in query.keys:
            _refuse_steps_of_telemetry(source, key, selection)
            since_t = _since_t(source, selection)
            options = SeriesOptions(
                selection, max_points, query.ruler, end, since_t, averaged=not is_evaluation(key)
            )
            by_key[key] = query_series(source.series(key), options)
    return answers


def _notes(source: Source, wanted: Sequence[str]) -> list[str]:
    """The notes of the source, and the keys that it has instead of losses."""
    known = source.keys()
    if wanted or not known:
        return source.notes(wanted)
    has = ", ".join(known[:_MOST_NAMED]) + (", ..." if len(known) > _MOST_NAMED else "")
    if all(map(is_telemetry, known)):
        unread = (
            f"{source.name}: no metrics of steps so far, only telemetry ({has}); "
            f"{command('diagnose', source.name)} reports a log that is not understood."
        )
        return [unread, *source.notes(wanted)]
    return [f"{source.name}: it reports no loss; name one of {has}.", *source.notes(wanted)]


def _empty(source: Source, answers: Mapping[str, MetricSeries]) -> list[str]:
    """Notes on series that have points, but none in the selected part."""
    notes = []
    for key, answer in answers.items():
        whole = None if answer.n else source.series(key).whole()
        if whole is not None:
            where = (
                ""
                if source.is_by_time(key)
                else f"; its steps are {whole.first_x} to {whole.last_x}"
            )
            notes.append(f"{source.name}: {key} has no points in the selected part{where}.")
    return notes


def _ruler(source: Source, wanted: Sequence[str], axis: Axis) -> Ruler:
    keys = source.keys()
    if axis == "tokens":
        if "tokens" not in keys and keys:
            raise bad_argument(
                "x", f"{source.name} reports no tokens.", "Use the axis step or time."
            )
        return Ruler(axis, source.series("tokens"))
    clocks = [key for key in ("loss", *wanted) if key in keys]
    steps = [key for key in clocks if not source.is_by_time(key)]
    ruler = Ruler(axis, source.series((steps or clocks or ["loss"])[0]))
    if axis == "time" and keys and source.end_t() is None:
        raise _no_times(source, "x")
    return ruler


def _refuse_steps_of_telemetry(source: Source, key: str, selection: Selection) -> None:
    """Raises:
    UsageError: `BAD_ARGUMENT`, steps are selected of a key that has none.
    """
    by_step = (selection.from_step, selection.to_step, selection.at) != (None, None, None)
    if source.is_by_time(key) and (by_step or selection.axis in ("step", "tokens")):
        raise bad_argument(
            "key",
            f"{key} is measured by time, not by step.",
            f"Select its part with {option('--since')}, and use the axis time.",
        )


def _since_t(source: Source, selection: Selection) -> float | None:
    if selection.since_s is None:
        return None
    end = source.end_t()
    if end is None:
        if not source.keys():
            return None
        raise _no_times(source, "since")
    return end - selection.since_s


def _no_times(source: Source, field: str) -> Exception:
    return bad_argument(field, f"The lines of {source.name} carry no times.", "Use steps.")


def _unlike(sources: Sequence[Source]) -> str | None:
    """Why the sources have no best value; None where they can be compared.

    Log files say neither their method nor their data: those alone are the caller's to compare.
    """
    groups: dict[Group | None, str] = {}
    for source in sources:
        groups.setdefault(source.group(), source.name)
    if len(groups) < 2:
        return None
    labels = [str(group or "a log file, which does not say") for group in groups]
    named = "; ".join(
        f"{name}: {label}" for name, label in zip(groups.values(), labels, strict=True)
    )
    alike = ", with other contents, tokenizer or sequence length" * (len(set(labels)) == 1)
    return (
        "Losses and other results of different methods or data can't be compared, so none is the "
        f"best ({named}{alike})."
    )


def _best(
    answers: Mapping[str, Mapping[str, MetricSeries]], *, speed_alone: bool
) -> dict[str, BestRun]:
    """By key, the best finite value of several sources."""
    best: dict[str, BestRun] = {}
    if len(answers) < 2:
        return best
    for name, by_key in answers.items():
        for key, series in by_key.items():
            higher = is_better_higher(key)
            value, step = (series.max, series.max_step) if higher else (series.min, series.min_step)
            if higher is None or value is None or step is None:
                continue
            if speed_alone and not is_of_speed(key):
                continue
            top = best.get(key)
            if top is None or (value > top.value if higher else value < top.value):  # type: ignore[operator]
                best[key] = BestRun(run=name, step=step, value=value)
    return best


def last_values(
    answers: Mapping[str, Mapping[str, MetricSeries]], *, comparable: bool = True
) -> LastValues:
    """The table of these series, by source and key: the best sources first, by the first key of
    which more or less is better, where they are `comparable`; those that are beyond the size are
    counted."""
    keys = list(dict.fromkeys(key for by_key in answers.values() for key in by_key))
    directed = (key for key in keys if is_better_higher(key) is not None)
    by = next(directed, None) if comparable else None
    names = list(answers)
    if by is not None:
        names.sort(key=lambda name: _rank(answers[name], by))
    for digits in _DIGITS:
        table = _table(answers, names, keys, digits).model_copy(update={"by": by})
        if _fits(table):
            return table
    for shown in range(len(names) - 1, 1, -1):
        table = _table(answers, names[:shown], keys, digits)
        if _fits(table):
            break
    return table.model_copy(update={"by": by, "omitted": len(answers) - len(table.runs) or None})


def _rank(series: Mapping[str, MetricSeries], key: str) -> tuple[bool, float]:
    value = series[key].last if key in series else None
    if not isinstance(value, float | int):  # not measured, or not finite
        return True, 0.0
    return False, -value if is_better_higher(key) else value


def _table(
    answers: Mapping[str, Mapping[str, MetricSeries]],
    names: list[str],
    keys: list[str],
    digits: int,
) -> LastValues:
    last = {key: [_last(answers[name].get(key), digits) for name in names] for key in keys}
    same = {key: column[0] for key, column in last.items() if len(set(column)) == 1}
    return LastValues(
        runs=names,
        last={key: column for key, column in last.items() if key not in same},
        same=same or None,
    )


def _last(series: MetricSeries | None, digits: int) -> int | Number | None:
    value = None if series is None else series.last
    if not isinstance(value, float | int):
        return value
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded


def _fits(table: LastValues) -> bool:
    shown = table.model_dump()
    return len(json.dumps(shown, ensure_ascii=False, separators=(",", ":"))) <= _MOST_BYTES
