"""What docs/logs.md publishes of the logs that were written blind is how they are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.benchmarks.labelled_logs import Point, judge_logs

from trainmaster.cli import run

_TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("logs", "blind"),
        ("second_logs", "second blind set"),
        ("third_logs", "third blind logs"),
        ("fourth_logs", "fourth blind logs"),
        ("seventh_logs", "seventh blind logs"),
    ],
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


def test_of_a_log_that_is_not_read_the_drafted_pattern_reads_every_loss(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(*arguments: str) -> Any:
        run(["metrics", *arguments, "--key", "loss", "--all", "--json"])
        return json.loads(capsys.readouterr().out)

    folder = _TESTS / "blind" / "logs"
    truth = json.loads((folder / "truth.json").read_text())
    for name in ("fairseq_json", "espnet_epochs", "catboost", "no_counter"):
        log = str(folder / f"{name}.log")
        drafted = ask(log)["coverage"][log]["untrusted_pattern"]
        loss = ask(log, "--pattern", drafted)["runs"][log]["loss"]
        assert loss["values"] == [value for _, value in truth[name]["loss"]]
        steps = [step for step, _ in truth[name]["loss"] if step is not None]
        assert not steps or loss["steps"] == steps
