"""Runs that are compared name the settings in which they differ, on both faces."""

from __future__ import annotations

from pathlib import Path

import anyio
from support.core.journal_records import attempt_starting, metric, started, state
from support.mcp.mcp_client import answer_of, connected
from support.runs.planted_journal import EVENTS, PlantedJournal
from support.runs.running_run import CommandLine

from trainmaster.sync.workspace import open_workspace


def test_compared_runs_name_the_settings_that_are_unlike(
    command: CommandLine, tmp_path: Path
) -> None:
    runs = []
    with open_workspace(command.environment) as workspace:
        for name, lr in (("slow", 0.001), ("fast", 0.002)):
            run = PlantedJournal(
                workspace, name, host="local", optimizer={"lr": lr, "name": "adamw"}
            )
            run.write(attempt_starting(1), state("running"))
            run.write(started(), metric(1, 2.123456789), name=EVENTS)
            runs.append(run.run_id)
    unlike = {"optimizer.lr": dict(zip(runs, (0.001, 0.002), strict=True))}

    async def over_mcp() -> None:
        async with connected(command.environment) as client:
            answer = await answer_of(client, "query_metrics", run_id=runs)
            assert answer["differences"] == unlike
            ranking = (await answer_of(client, "query_metrics"))["ranking"]["loss"]
            assert ranking["values"] == [2.12346, 2.12346]
            assert "differences" not in await answer_of(client, "query_metrics", run_id=runs[:1])

    anyio.run(over_mcp)
    assert command("metrics", *runs)["differences"] == unlike


def test_superseded_samples_are_left_out_on_both_faces(command: CommandLine) -> None:
    def wrote(step: int, text: str) -> tuple[str, dict[str, object]]:
        return "eval.samples", {"step": step, "prompt": "A", "text": text, "tokens": 2}

    with open_workspace(command.environment) as workspace:
        run = PlantedJournal(workspace, "writer", host="local")
        run.write(attempt_starting(1), state("running"))
        run.write(started(), wrote(20, "old"), wrote(40, "left behind"), name=EVENTS)
        again = ("attempt_running", {"attempt": 2})
        run.write(attempt_starting(2, why="killed"), again)
        run.write(started(10), wrote(20, "new"), name="attempts/2/events.jsonl")

    async def over_mcp() -> None:
        async with connected(command.environment) as client:
            answer = await answer_of(client, "sample_run", run_id=run.run_id)
            assert [text["untrusted_text"] for text in answer["samples"]] == ["new"]

    anyio.run(over_mcp)
    (sample,) = command("sample", run.run_id)["samples"]
    assert (sample["step"], sample["untrusted_text"]) == (20, "new")
