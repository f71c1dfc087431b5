"""What docs/diagnosis.md publishes of the blind texts is what they give."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from support.benchmarks.labelled_texts import judge_texts

_TESTS = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "name", ["first", "second", "third", "fourth", "fifth", "sixth", "seventh"]
)
def test_the_published_figures_of_the_texts_at_hand_hold(name: str) -> None:
    rows = json.loads((_TESTS / "benchmarks" / "judged_texts.json").read_text())
    (published,) = [row for row in rows if row["set"] == f"{name} blind set, after work on it"]
    measured = asdict(judge_texts(_TESTS / "blind" / name))
    assert measured == {name: published[name] for name in measured}
