"""`clean_run`: what a run left goes once its user has agreed, and not before."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.types import ElicitRequestParams, ElicitResult
from support.mcp.mcp_client import answer_of, connected, error_of, wait_for
from support.runs.operator import FAST
from support.runs.running_run import small_spec, wait_until

from trainer_runtime.core.files.durable import is_locked
from trainer_runtime.host.files.layout import RunFolder
from trainmaster.mcp import build_server


def wait_until_idle(folder: Path) -> None:
    """Until nothing is written there any more, by which a quote would become another."""
    lock = RunFolder(folder).supervisor_lock
    wait_until(lambda: not is_locked(lock), "the supervisor's end")


@pytest.mark.slow
def test_a_run_is_cleaned_when_its_user_agrees_to_what_goes(
    environment: dict[str, str], tmp_path: Path
) -> None:
    spec = small_spec(tmp_path, host="debug", env=FAST)
    asked: list[str] = []
    answers = [
        ElicitResult(action="decline"),
        ElicitResult(action="accept", content={"agree": True}),
    ]

    async def says(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return answers.pop(0)

    async def scenario() -> None:
        server: Any = build_server(environment)
        async with Client(server, mode="2026-07-28", elicitation_callback=says) as client:
            run = (await answer_of(client, "launch", spec=spec))["run_id"]
            folder = Path(environment["TRAINMASTER_HOME"]) / "debug" / "runs" / run
            await wait_for(client, run, "completed")
            wait_until_idle(folder)
            assert "BAD_ARGUMENT" in await error_of(client, "clean_run", run_id=run, keep="logs")
            assert asked == []
            wanted = {"run_id": run, "keep": ["final"]}
            assert "CONFIRMATION_DECLINED" in await error_of(client, "clean_run", **wanted)
            assert (folder / "checkpoints").is_dir() and run in asked[0] and "final" in asked[0]
            cleaned = await answer_of(client, "clean_run", **wanted)
            assert cleaned["kept"] == ["final"] and cleaned["freed_bytes"] > 0
            assert not any((folder / "checkpoints").iterdir())
            assert (folder / "final").is_dir()
        async with connected(environment) as client:  # which can't ask, and need not
            assert (await answer_of(client, "clean_run", **wanted))["removed"] == []
            assert "CONFIRMATION_REQUIRED" in await error_of(client, "clean_run", run_id=run)
            other = (await answer_of(client, "launch", spec=spec))["run_id"]
            await wait_for(client, other, "completed")
            left = folder.with_name(other)
            wait_until_idle(left)
            rmtree(left)  # what is left is that it can be resumed
            assert "CONFIRMATION_REQUIRED" in await error_of(client, "clean_run", run_id=other)

    anyio.run(scenario)
