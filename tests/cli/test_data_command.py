"""`trainmaster data inspect` as people and programs see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainmaster.answers.data_inspection import DataInspection
from trainmaster.cli import run


@pytest.fixture
def rows(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINMASTER_HOME", str(home))
    path = tmp_path / "rows.jsonl"
    pairs = ({"prompt": f"What is {n}?", "completion": f"A number: {n}"} for n in range(40))
    path.write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    return path


def test_people_see_what_the_data_is_and_what_learns_from_it(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["data", "inspect", str(rows)]) == 0
    shown = capsys.readouterr().out
    for line in ("Files: 1 × JSON Lines", "Format: jsonl", "Rows: 40", "Next: In a spec: "):
        assert f"\n{line}" in shown
    lines = [line.split() for line in shown.splitlines()]
    assert ["prompt", "text", "100", "%"] in lines and ["sft", "yes"] in lines
    assert 'Example: {"prompt": "What is 0?"' in shown


def test_programs_get_the_answer_as_json(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "inspect", str(rows), "--json"]) == 0
    answer = DataInspection.model_validate_json(capsys.readouterr().out)
    assert answer.sources[0].rows == 40 and answer.sources[0].format == "jsonl"


@pytest.mark.parametrize("named", ["s3://bucket/key", "./nothing-here"])
def test_a_refusal_is_an_error_with_code_and_remedy(
    rows: Path, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    code = run(["data", "inspect", named, "--json"])
    error = json.loads(capsys.readouterr().out)["error"]
    assert code in (1, 2) and error["code"] in ("NOT_YET_SUPPORTED", "DATA_MISSING")
    assert error["fix"]
