"""Where a run's time went: a training that is killed twice, with slow saves and evaluations."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import pytest
from support.attack.served import until
from support.mcp.mcp_client import answer_of, connected
from support.runs.light_run import light_spec, standing
from support.runs.running_run import LONGEST_S, CommandLine, kill, processes_of

_STEP_S, _SAVE_S, _EVAL_S = 0.03, 0.8, 0.6
_SURE = 0.75  # of what is planted: a program does not say how long it saves, and others run beside


def test_lost_seconds_are_those_of_the_planted_crashes_saves_and_evaluations(
    command: CommandLine, tmp_path: Path
) -> None:
    paces = ("--step-s", str(_STEP_S), "--save-s", str(_SAVE_S), "--eval-s", str(_EVAL_S))
    words = (*paces, "--eval-every", "20", *standing(30, 1, 2))
    run = command("launch", light_spec(tmp_path, *words, limits="{max_runtime: 1h}"))["run_id"]
    for attempt in (1, 2):
        until(partial(_stands, command, run, attempt), LONGEST_S)
        kill(processes_of(command.folder(run))["trainer"])
    command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    goodput = command("status", run)["goodput"]
    lost = goodput["lost_s"]
    # Steps 21 to 30 twice; the first step of each attempt belongs to its start.
    assert lost["rework"] >= 18 * _STEP_S, goodput
    # Saves at 20, 40, and as the end 60; evaluations at 20, 40 and 60.
    assert lost["save"] >= _SURE * 3 * _SAVE_S, goodput
    assert lost["evaluation"] >= _SURE * 3 * _EVAL_S, goodput
    assert lost["crash"] > 0 and lost["preparation"] > 0 and "stall" not in lost, goodput
    training_s = goodput["ettr"] * goodput["elapsed_s"]
    assert training_s >= 56 * _STEP_S, goodput
    assert training_s + sum(lost.values()) == pytest.approx(goodput["elapsed_s"], rel=0.05)
    assert "was training; lost: " in (command.folder(run).root / "training_status.md").read_text()

    async def over_mcp() -> None:
        async with connected(command.environment) as client:
            answer = await answer_of(client, "get_run", run_id=run)
            assert answer["goodput"] == goodput

    anyio.run(over_mcp)


def _stands(command: CommandLine, run: str, attempt: int) -> bool:
    log = command.folder(run).attempt(attempt).train_log
    return log.is_file() and "step 30 " in log.read_text()
