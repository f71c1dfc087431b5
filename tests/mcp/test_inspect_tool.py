"""`inspect_run` over MCP, of a training that somebody else has started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.types import CallToolResult, ElicitRequestParams, ElicitResult
from support.host.hanging_processes import Hanging
from support.session.tiers import at_length

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.mcp import build_server
from trainmaster.store.run import Run
from trainmaster.sync.workspace import open_workspace

pytestmark = pytest.mark.slow

_ERAS = pytest.mark.parametrize("era", ["2026-07-28", *at_length("legacy")])
_SAVES = """
import os, pathlib
import torch

os.mkfifo("checkpoint.pt")
pathlib.Path("ready").touch()
torch.save({"weights": torch.ones(4)}, "checkpoint.pt")
"""


@pytest.fixture
def foreign_process(tmp_path: Path) -> Iterator[Hanging]:
    """An attached run on `local`, whose process hangs in a save and does not answer by itself."""
    runs = tmp_path / "home" / "local" / "runs"
    with Hanging(runs) as hanging:
        config = {"framework": "attached", "steps": 10, "checkpoint": {"metric": "val_loss"}}
        hanging.run.config.write_text(json.dumps(config))
        hanging.start(_SAVES, answers=False)
        hanging.wait_for("ready")
        name = hanging.run.run_id
        run = Run(name, name, 1.0, "local", "", config, {}, {})
        with open_workspace({"TRAINMASTER_HOME": str(tmp_path / "home")}) as workspace:
            wanted = Desired(DesiredState.RUNNING, generation=1)
            workspace.control.add_run(run, wanted, "process", str(hanging.run.root), None)
            workspace.control.close_run(name, answered=1)  # nobody is to follow it
        yield hanging


async def ask(
    home: Path, era: str, run_id: str, says: ElicitResult | None, **arguments: bool
) -> CallToolResult:
    """The tool's result; `says` is what the user does when asked, None where nobody can be."""

    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert run_id in params.message and says is not None
        return says

    server = build_server({"TRAINMASTER_HOME": str(home)})
    options: dict[str, Any] = {} if says is None else {"elicitation_callback": answer}
    async with Client(server, mode=era, **options) as client:
        for _ in range(10):
            result = await client.call_tool("inspect_run", {"run_id": run_id, **arguments})
            reported = result.structured_content or {}
            if reported.get("verdict") != "stall" or reported["py_spy"] == "not_allowed":
                break
        return result


@_ERAS
def test_a_foreign_process_is_read_once_the_user_allows_it(
    foreign_process: Hanging, tmp_path: Path, era: str
) -> None:
    async def read() -> dict[str, Any]:
        run_id, yes = (
            foreign_process.run.run_id,
            ElicitResult(action="accept", content={"agree": True}),
        )
        result = await ask(tmp_path / "home", era, run_id, yes, allow_py_spy=True)
        assert not result.is_error, result.content
        return result.structured_content or {}

    reported = anyio.run(read)
    assert (reported["verdict"], reported["py_spy"]) == ("hang_checkpoint", "used")
    assert any("torch/serialization.py" in line for line in reported["ranks"][0]["lines"])


@_ERAS
def test_without_a_yes_it_is_left_alone_and_the_call_that_asks_is_named(
    foreign_process: Hanging, tmp_path: Path, era: str
) -> None:
    home, run_id = tmp_path / "home", foreign_process.run.run_id

    async def refused() -> None:
        result = await ask(home, era, run_id, None)
        reported = result.structured_content or {}
        assert (reported["verdict"], reported["py_spy"]) == ("stall", "not_allowed")
        call = f'`inspect_run(run_id="{run_id}", allow_py_spy=true)`'
        assert call in reported["next_step"]
        for says, code in (
            (None, "CONFIRMATION_REQUIRED"),
            (ElicitResult(action="decline"), "CONFIRMATION_DECLINED"),
            (ElicitResult(action="accept", content={"agree": False}), "CONFIRMATION_DECLINED"),
        ):
            result = await ask(home, era, run_id, says, allow_py_spy=True)
            assert result.is_error
            assert result.content[0].text.startswith(f"{code}: ")  # type: ignore[union-attr]

    anyio.run(refused)
