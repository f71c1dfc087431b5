"""A path in place of a run: the same words from every command that reads logs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from trainmaster.cli import run


@pytest.mark.parametrize("command", ["logs", "metrics", "diagnose"])
def test_what_is_no_regular_file_is_refused_without_waiting_for_it(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        assert run([command, str(path), "--json"]) == 1
        error = json.loads(capsys.readouterr().out)["error"]
        assert (error["code"], error["retryable"]) == ("LOG_NOT_READABLE", False)
        assert str(path) in error["message"]
    assert run([command, str(tmp_path / "none"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "RUN_NOT_FOUND"
