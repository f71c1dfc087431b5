"""What docs/logs.md publishes of the logs that were written blind is how they are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.benchmarks.labelled_logs import Point, judge_logs

from trainmaster.cli import run

_TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("folder", "name"), [("logs", "blind"), ("second_logs", "second blind set")]
)
def test_the_published_numbers_of_logs_at_hand_hold(
    folder: str, name: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(path: Path) -> list[Point]:
        run(["metrics", str(path), "--key", "loss", "--all", "--json"])
        series = next(iter(json.loads(capsys.readouterr().out).get("runs", {}).values()), {})
        loss = series.get("loss", {})
        values = loss.get("values", [])
        return list(zip(loss.get("steps") or [None] * len(values), values, strict=True))

    rows = json.loads((_TESTS / "benchmarks" / "judged_logs.json").read_text())
    (published,) = [row for row in rows if row["set"] == f"{name}, after work on it"]
    measured = judge_logs(_TESTS / "blind" / folder, read)
    assert {outcome: len(names) for outcome, names in measured.items()} == {
        outcome: published[outcome] for outcome in measured
    }, measured
