"""A damaged `metrics.db`: no call that reads, and none that ends something, has to be repeated."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.mcp.mcp_client import answer_of, connected
from support.runs.running_run import small_spec

from trainmaster.cli import run

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def completed(home: Path, tmp_path: Path, capsys: Captured) -> str:
    """A run that was simulated to its end."""
    spec = small_spec(tmp_path, host="debug", env='{TRAINMASTER_STEP_S: "0.001"}')
    launched = answered(capsys, "launch", _written(tmp_path / "spec.yaml", spec))
    answered(capsys, "wait", launched["run_id"], "--until", "completed", "--timeout", "240")
    return str(launched["run_id"])


def _written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def answered(capsys: Captured, *command: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run([*command, "--json"]) == 0, capsys.readouterr().out
    answer: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return answer


def damage(home: Path) -> None:
    """Overwrite all but the first page, as a failing disk would."""
    path = home / "metrics.db"
    assert not path.with_name("metrics.db-wal").exists()
    data = path.read_bytes()
    path.write_bytes(data[:4096].ljust(len(data), b"\xff"))


def test_commands_and_tools_answer_as_before(home: Path, completed: str, capsys: Captured) -> None:
    for command in ("runs", "status", "metrics", "stop"):
        words = [command] if command == "runs" else [command, completed]
        before = answered(capsys, *words)
        damage(home)
        assert answered(capsys, *words).keys() == before.keys()
        shown = answered(capsys, "metrics", completed)["runs"][completed]
        assert shown["loss"]["n"] == 60
        assert list(home.glob("metrics.db.damaged.*"))

    async def ask(name: str, **arguments: Any) -> None:
        async with connected({"TRAINMASTER_HOME": str(home)}) as client:
            assert completed in json.dumps(await answer_of(client, name, **arguments))

    for name, arguments in (("list_runs", {}), ("query_metrics", {"run_id": [completed]})):
        damage(home)
        anyio.run(partial(ask, name, **arguments))
