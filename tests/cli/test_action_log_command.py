"""`trainmaster log`: which calls of each face are recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.mcp.mcp_client import answer_of, connected, error_of

from trainmaster.cli import run


def actions(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert run(["log", "--json", *arguments]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["actions"]
    return rows


def test_commands_that_act_are_recorded_and_those_that_read_are_not(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["hosts", "add", "gpu1", "me@gpu1.example", "--offline"]) == 0
    assert run(["runs"]) == 0
    assert run(["stop", "no-such-run"]) == 1
    assert run(["tick"]) == 0  # nothing is due
    assert run(["keeper", "install", "--print"]) == 0
    added, stopped = actions(capsys)
    assert (added["face"], added["action"], added["outcome"]) == ("cli", "hosts add", "ok")
    assert added["target"] == {"name": "gpu1", "host": "gpu1"}
    assert added["client"].endswith("(program)")
    assert (stopped["action"], stopped["outcome"]) == ("stop", "RUN_NOT_FOUND")
    assert stopped["target"] == {"run_id": "no-such-run"}
    assert [row["action"] for row in actions(capsys, "--limit", "1")] == ["stop"]


def test_people_see_a_table_and_the_files_place(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["log"]) == 0
    assert f"No call has acted yet. They are recorded in {home}" in capsys.readouterr().out
    assert run(["hosts", "remove", "gpu1"]) == 1
    assert run(["log"]) == 0
    shown = capsys.readouterr().out
    assert "hosts remove" in shown
    assert "HOST_UNKNOWN" in shown


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
def test_tools_that_act_are_recorded_with_their_client(
    home: Path, era: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        async with connected({"TRAINMASTER_HOME": str(home)}, era) as client:
            await answer_of(client, "list_runs")
            await error_of(client, "stop", run_id="no-such-run")
            await error_of(client, "stop", runid="misspelt")

    anyio.run(scenario)
    (stopped,) = actions(capsys)
    assert (stopped["face"], stopped["action"]) == ("mcp", "stop")
    assert stopped["outcome"] == "RUN_NOT_FOUND"
    assert stopped["client"].startswith("mcp ")
