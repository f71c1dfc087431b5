"""`inspect` of a real training whose disk stops answering."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.backends.frozen_processes import FrozenDisk
from support.runs.running_run import LONGEST_S, CommandLine, kill_processes, pace, small_spec

_LONG = {
    "steps": "1000000",
    "checkpoint": "{every: 50, keep_latest: 1}",
    "eval": "{every_steps: 1000000}",
}


@pytest.fixture
def command(tmp_path: Path) -> Iterator[CommandLine]:
    command = CommandLine(tmp_path / "home")
    yield command
    kill_processes(command.root)


def until(command: CommandLine, run: str, met: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first inspection of a run that is as wanted, at most the twentieth."""
    for _ in range(20):
        answer = command("inspect", run)
        if met(answer):
            return answer
    raise AssertionError(answer)


@pytest.mark.long
def test_a_checkpoint_on_a_disk_that_does_not_answer_is_named_and_reported_to_people(
    command: CommandLine, tmp_path: Path
) -> None:
    run = command("launch", small_spec(tmp_path, env=pace(tmp_path), **_LONG))["run_id"]
    folder = command.folder(run)
    command("wait", run, "--until", "step:5", "--timeout", str(LONGEST_S))
    folder.checkpoints.mkdir(exist_ok=True)
    with FrozenDisk(folder.checkpoints, tmp_path / "image") as disk:
        command("wait", run, "--until", "checkpoint", "--timeout", str(LONGEST_S))
        disk.freeze()
        answer = until(command, run, lambda answer: answer["verdict"] == "hang_checkpoint")
        assert answer["confidence"] >= 0.85
        (rank,) = answer["ranks"]
        assert rank["at"] == "checkpoint" and rank["step"] == answer["step"] > 50
        assert any(
            "checkpoints/checkpointer.py" in line or "checkpoints/checkpoint.py" in line
            for line in rank["lines"]
        )
        reported = command.start("inspect", run)
        text, errors = reported.communicate(timeout=LONGEST_S)
        assert reported.returncode == 0, errors
        assert f"{run}, attempt 1: hang_checkpoint" in text
        assert "Rank 0" in text and "Do: " in text and "All stacks: " in text
        disk.thaw()
        until(command, run, lambda answer: answer["verdict"] == "moving")
        command("stop", run)
        command("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
        refused = command("inspect", run, code=1)["error"]
        assert refused["code"] == "RUN_ENDED"
