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
from mcp.types import ElicitRequestParams, ElicitResult
from support.box.hanging_processes import Hanging

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.mcp import build_server
from trainmaster.store.run import Run
from trainmaster.sync.workspace import open_workspace

pytestmark = pytest.mark.slow

_ERAS = pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
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


async def ask(home: Path, era: str, run_id: str, says: ElicitResult | None) -> dict[str, Any]:
    """The tool's answer; `says` is what the user does when asked, None where nobody can be."""

    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert run_id in params.message and says is not None
        return says

    server = build_server({"TRAINMASTER_HOME": str(home)})
    options: dict[str, Any] = {} if says is None else {"elicitation_callback": answer}
    async with Client(server, mode=era, **options) as client:
        for _ in range(10):
            result = await client.call_tool("inspect_run", {"run_id": run_id})
            assert not result.is_error, result.content
            reported: dict[str, Any] = result.structured_content or {}
            if reported["verdict"] == "hang_checkpoint" or reported["py_spy"] == "not_allowed":
                break
        return reported


@_ERAS
def test_a_foreign_process_is_read_once_the_user_allows_it(
    foreign_process: Hanging, tmp_path: Path, era: str
) -> None:
    yes = ElicitResult(action="accept", content={"allow": True})
    reported = anyio.run(ask, tmp_path / "home", era, foreign_process.run.run_id, yes)
    assert (reported["verdict"], reported["py_spy"]) == ("hang_checkpoint", "used")
    assert any("torch/serialization.py" in line for line in reported["ranks"][0]["lines"])


@_ERAS
@pytest.mark.parametrize(
    "says",
    [
        None,
        ElicitResult(action="decline"),
        ElicitResult(action="accept", content={"allow": False}),
    ],
)
def test_without_a_yes_it_is_left_alone_and_the_command_is_named(
    foreign_process: Hanging, tmp_path: Path, era: str, says: ElicitResult | None
) -> None:
    reported = anyio.run(ask, tmp_path / "home", era, foreign_process.run.run_id, says)
    assert (reported["verdict"], reported["py_spy"]) == ("stall", "not_allowed")
    assert f" inspect {foreign_process.run.run_id} --allow-py-spy`" in reported["next_step"]
