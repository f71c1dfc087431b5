"""Calls while the metrics database is being rebuilt by another process."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
from mcp import Client
from support.mcp.mcp_client import answer_of, error_of
from support.runs.planted_mirror import lose_metrics, plant_mirror

from trainer_runtime.core.files.durable import try_lock
from trainmaster.mcp.error_mapping import AnsweringServer
from trainmaster.mcp.server import build_server
from trainmaster.sync.workspace import Workspace


def test_reading_answers_meanwhile_and_what_acts_is_to_be_repeated(
    workspace: Workspace, home: Path
) -> None:
    run_id = plant_mirror(workspace, "long", 50)
    lose_metrics(workspace)
    server = build_server({"TRAINMASTER_HOME": str(home)})
    assert isinstance(server, AnsweringServer)
    server.longest_rebuild_s = 0.05
    lock = try_lock(workspace.home.rebuild_lock)
    assert lock is not None

    async def scenario() -> None:
        async with Client(server) as client:
            status = await answer_of(client, "get_run", run_id=run_id)
            assert "being rebuilt" in status["incomplete"]
            for tool in ("stop", "resume", "wait_for_event"):
                refused = await error_of(client, tool, run_id=run_id)
                assert refused.startswith("METRICS_BEING_REBUILT: ")
                assert refused.endswith("retryable=yes")
            os.close(lock)
            status = await answer_of(client, "get_run", run_id=run_id)
            assert "incomplete" not in status and status["step"] == 50

    anyio.run(scenario)
