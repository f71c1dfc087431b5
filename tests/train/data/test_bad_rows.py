"""Rows that a method can't learn from, where `datasets` reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.train.attempt.config import RunConfig
from trainer_runtime.train.data.prepare_rows import main
from trainer_runtime.train.data.rows import load_rows

_BAD = ["{broken", '{"prompt": "no answer"}', '{"prompt": 5, "completion": "a"}', '"a text"']


def config_of(folder: Path, path: Path, data_format: str, bad_rows: float) -> dict[str, Any]:
    source = {"name": "main", "path": str(path), "format": data_format}
    data = {
        "sources": [source],
        "cache_dir": str(folder / "cache"),
        "fingerprint": "0123456789abcdef",
        "bad_rows": bad_rows,
    }
    return {"framework": "trl", "method": "sft", "data": data}


def prepared(folder: Path, config: dict[str, Any]) -> int:
    (folder / "request.json").write_text(json.dumps(config))
    return main(str(folder / "request.json"))


def good(count: int) -> list[dict[str, str]]:
    return [{"prompt": f"{number}?", "completion": "yes"} for number in range(count)]


def loaded(config: dict[str, Any]) -> list[str]:
    training, held_out = load_rows(RunConfig.parse(json.dumps(config)))
    return sorted([*training["prompt"], *held_out["main"]["prompt"]])


def test_bad_json_lines_are_left_out_and_the_first_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.dumps(row) for row in good(200)]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([*lines[:9], *_BAD, *lines[9:]]))
    config = config_of(tmp_path, path, "jsonl", 0.03)
    assert prepared(tmp_path, config) == 0
    said = capsys.readouterr().out
    assert f"main: 4 of 204 rows skipped; the first: {path}, line 10: it is not a JSON" in said
    assert loaded(config) == sorted(row["prompt"] for row in good(200))
    assert prepared(tmp_path, config) == 0  # once more, by what was noted
    assert loaded(config) == sorted(row["prompt"] for row in good(200))


@pytest.mark.parametrize("data_format", ["parquet", "hf"])
def test_bad_rows_of_a_table_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data_format: str
) -> None:
    import datasets

    rows = good(100)
    rows[50] = {"prompt": "bad"}
    table = datasets.Dataset.from_list(rows)
    path = tmp_path / "rows.parquet"
    if data_format == "hf":
        path = tmp_path / "saved"
        datasets.DatasetDict({"train": table}).save_to_disk(path)
    else:
        table.to_parquet(path)
    config = config_of(tmp_path, path, data_format, 0.01)
    assert prepared(tmp_path, config) == 0
    assert f"1 of 100 rows skipped; the first: {path}, row 51" in capsys.readouterr().out
    assert loaded(config) == sorted(row["prompt"] for row in rows if row["prompt"] != "bad")


@pytest.mark.parametrize("share", [0.0, 0.01])
def test_more_bad_rows_than_allowed_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], share: float
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([json.dumps(row) for row in good(20)] + _BAD))
    assert prepared(tmp_path, config_of(tmp_path, path, "jsonl", share)) == ExitCode.UNUSABLE
    said = capsys.readouterr().out
    assert "line 21: it is not a JSON object" in said and "data.bad_rows allows" in said


def test_a_row_of_another_shape_than_the_first_is_bad(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([*map(json.dumps, good(200)), '{"text": "plain"}']))
    config = config_of(tmp_path, path, "jsonl", 0.01)
    assert prepared(tmp_path, config) == 0
    assert "line 201: it differs from the first row in having" in capsys.readouterr().out
    assert len(loaded(config)) == 200
