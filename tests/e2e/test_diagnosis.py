"""A real training is resumed with the patch of a finding in its journal."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs.planted_runs import HALVED, finding, plant
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    begin_with,
    run_async,
    small_spec,
    standing_after,
)

from trainer_runtime.host.files.files import read_json
from trainmaster.sync.workspace import open_workspace


@pytest.mark.long  # tests/runs/test_recovery_rehearsed.py
def test_a_real_training_continues_with_half_the_micro_batch_and_the_same_step(
    command: CommandLine, tmp_path: Path
) -> None:
    env = begin_with(tmp_path / "standing", standing_after(200, 1))
    launched = command("launch", small_spec(tmp_path, steps="2000", env=env))
    run, since = launched["run_id"], ("--cursor", launched["cursor"])
    command("wait", run, "--until", "checkpoint", "--timeout", str(LONGEST_S), *since)
    command("stop", run)
    command("wait", run, "--until", "stopped", "--timeout", str(LONGEST_S))
    reached = command("status", run)["step"]
    first = read_json(command.folder(run).attempt(1).config) or {}
    batch = first["batch"]
    patch = {
        **HALVED,
        "set": {
            "batch.micro_batch": batch["micro_batch"] // 2,
            "batch.accumulation": batch["accumulation"] * 2,
        },
        "expected": {key: batch[key.partition(".")[2]] for key in HALVED["expected"]},
    }

    async def find_it() -> None:
        with open_workspace({"TRAINMASTER_HOME": str(command.home)}) as workspace:
            await plant(workspace, run, finding("0a0a0a0a", patches=[patch]))

    run_async(find_it)
    assert [one["code"] for one in command("diagnose", run)["findings"]] == ["cuda_oom"]
    target = str(reached + 40)
    command("resume", run, "--apply", "0a0a0a0a:halve_micro_batch", "--set", f"steps={target}")
    ended = command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert (ended["event"], ended["step"]) == ("completed", reached + 40)

    status = command("status", run, "--detail")
    assert status["findings"] == []
    second = status["attempts"][1]
    assert second["by"] == "patch:0a0a0a0a:halve_micro_batch"
    assert second["why"] == "cuda_oom"
    assert second["started_at_step"] == reached
    micro = batch["micro_batch"]
    assert second["changed"]["batch.micro_batch"] == [micro, micro // 2]
    reported = read_json(command.folder(run).attempt(2).config) or {}
    per_step = reported["batch"]["micro_batch"] * reported["batch"]["accumulation"]
    assert per_step == batch["micro_batch"] * batch["accumulation"]
    assert reported["data"]["seq_len"] == first["data"]["seq_len"]
    losses = command("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]
    assert losses["steps"] == list(range(1, reached + 41))
