"""Many series as one table: the last value of each, in few tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping

from trainmaster.answers.base import Number
from trainmaster.answers.metrics import LastValues, MetricSeries
from trainmaster.metrics.directions import is_better_higher

# Significant digits: the fewest where more of them would not fit.
_DIGITS = (4, 3)
# With the words around it 250 tokens: a column of numbers takes one for each two bytes or less.
_MOST_BYTES = 420


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
