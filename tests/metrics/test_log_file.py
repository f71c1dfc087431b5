"""A path in place of a run: the same words from every command that reads logs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from trainmaster.cli import run

READERS = ["logs", "metrics", "diagnose", "plot"]


@pytest.mark.parametrize("command", ["logs", "metrics", "diagnose"])
def test_what_is_no_regular_file_is_refused_without_waiting_for_it(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    endless = Path("/dev/zero"), Path("/proc/self/mem")  # the second one calls itself a file
    for path in (tmp_path, tmp_path / "pipe", *endless):
        assert run([command, str(path), "--json"]) == 1
        error = json.loads(capsys.readouterr().out)["error"]
        assert (error["code"], error["retryable"]) == ("LOG_NOT_READABLE", False)
        assert os.path.realpath(path) in error["message"] or str(path) in error["message"]
    assert run([command, str(tmp_path / "none"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "RUN_NOT_FOUND"


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("path", ["edge/missing.log", "missing.out", "/nope/x"])
def test_a_path_at_which_nothing_lies_is_called_neither_a_file_nor_a_run(
    home: Path, capsys: pytest.CaptureFixture[str], command: str, path: str
) -> None:
    assert run([command, path, "--json"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "RUN_NOT_FOUND"
    assert f"No file {path!r}" in error["message"]
    assert "no run" in error["message"]
    assert "path" in error["fix"]


@pytest.mark.parametrize("command", ["metrics", "diagnose"])
def test_an_empty_file_is_called_empty(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    empty = tmp_path / "train.log"
    empty.touch()
    assert run([command, str(empty)]) == 0
    printed = capsys.readouterr().out
    assert "is empty" in printed
    assert "Nothing is wrong" not in printed
    assert "100" not in printed
