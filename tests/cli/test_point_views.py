"""Points and journals as people and spreadsheets read them."""

from __future__ import annotations

import csv

from trainmaster.answers.metrics import MetricsAnswer, MetricSeries
from trainmaster.cli.views.journal import journal_words
from trainmaster.cli.views.points import csv_lines, point_lines

_POINTS = MetricSeries(n=3, steps=[1, 2, 3], values=[2.5, 0.123456789, "NaN"])
_ANSWER = MetricsAnswer(runs={"a,b": {"loss": _POINTS}})


def test_every_point_is_a_line_of_csv_in_full() -> None:
    rows = list(csv.reader(csv_lines(_ANSWER)))
    assert rows[0] == ["run", "metric", "step", "value"]
    assert rows[1:] == [
        ["a,b", "loss", "1", "2.5"],
        ["a,b", "loss", "2", "0.123456789"],
        ["a,b", "loss", "3", "NaN"],
    ]


def test_every_point_is_a_line_for_people() -> None:
    lines = [line.split() for line in point_lines(_ANSWER)]
    assert lines == [["a,b", "loss,", "3", "points"], ["1", "2.5"], ["2", "0.1235"], ["3", "NaN"]]


def test_a_journal_is_read_in_words_and_other_lines_as_they_are() -> None:
    line = '{"v":1,"seq":3,"t":0,"kind":"attempt_ended","attempt":1,"code":null,"by":{"a":2}}'
    assert journal_words(line) == "1970-01-01T00:00:00Z  attempt ended  attempt 1  by (a 2)"
    for other in ("not JSON", "[1]", '{"t":"x","kind":"y"}', '{"t":1e400,"kind":"y"}', "[" * 5000):
        assert journal_words(other) in (other, "?  y")
