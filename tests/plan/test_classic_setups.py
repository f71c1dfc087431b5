"""Ten classic trainings as planned, beside what the paper or recipe used: docs/planning.md."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.plan.classic_setups import COLUMNS, SETUPS, Setup, planned_cells
from support.runs.running_run import CommandLine

Plans = dict[str, dict[str, Any]]
_PAGE = Path(__file__).parents[2] / "docs" / "planning.md"
_BEGINS, _ENDS = "<!-- classic set-ups: generated -->\n", "<!-- end -->\n"


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Plans:
    """The written plan of each set-up, by its name."""
    folder = tmp_path_factory.mktemp("classic")
    command = CommandLine(folder / "home")
    made = {}
    for number, setup in enumerate(SETUPS):
        spec, written = folder / f"{number}.yaml", folder / f"plan{number}"
        spec.write_text(f"name: classic\n{setup.spec}")
        command("plan", str(spec), "--on", setup.on, "--write", str(written))
        made[setup.name] = json.loads((written / "plan.json").read_text())
    return made


def table(plans: Plans) -> str:
    lines = [f"| set-up | | {' | '.join(COLUMNS)} |", "|" + "---|" * (len(COLUMNS) + 2)]
    for setup in SETUPS:
        plan = plans[setup.name]
        cells = planned_cells(plan["config"], plan["gpu"]["planned"], plan["estimates"])
        lines.append(f"| {setup.name} | planned | {' | '.join(cells)} |")
        lines.append(f"| | {setup.source} | {' | '.join(setup.published)} |")
    return "\n".join(lines) + "\n"


def test_the_page_shows_what_is_planned_now(plans: Plans) -> None:
    text = _PAGE.read_text()
    before, _, rest = text.partition(_BEGINS)
    if os.environ.get("UPDATE_GOLDEN"):
        _PAGE.write_text(f"{before}{_BEGINS}\n{table(plans)}\n{_ENDS}{rest.partition(_ENDS)[2]}")
    assert f"{_BEGINS}\n{table(plans)}\n{_ENDS}" in _PAGE.read_text()


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.name)
def test_a_classic_training_is_planned_within_reach_of_its_recipe(
    plans: Plans, setup: Setup
) -> None:
    plan = plans[setup.name]
    cells = planned_cells(plan["config"], plan["gpu"]["planned"], plan["estimates"])
    planned, published = (dict(zip(COLUMNS, row, strict=True)) for row in (cells, setup.published))
    for column, factor in (("rate", 1.6), ("GPU-hours", 2.1)):
        if published[column] != "—":
            ours, theirs = (float(row[column].replace(",", "")) for row in (planned, published))
            assert 1 / factor < ours / theirs < factor, column
    assert not [text for text in plan["warnings"] if "usual" in text]
