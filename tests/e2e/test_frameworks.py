"""One spec under every framework: the same promises, and the same answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs.comparable_runs import (
    CHECKPOINT,
    METRICS,
    STATUS,
    STATUS_METRICS,
    STEPS,
    kill_after_a_checkpoint,
    one_spec,
    started,
)
from support.runs.running_run import LONGEST_S, CommandLine

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("framework", ["nanogpt", "litgpt", "hf", "trl"])
def test_a_killed_run_recovers_completes_and_answers_alike(
    command: CommandLine, tmp_path: Path, framework: str
) -> None:
    run = command("launch", one_spec(tmp_path, framework))["run_id"]
    kill_after_a_checkpoint(command, run)
    ended = command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert ended["event"] == "completed"

    status = command("status", run)
    assert status.keys() >= STATUS
    assert status["metrics"].keys() == STATUS_METRICS
    assert (status["state"], status["attempt"], status["step"]) == ("completed", 2, STEPS)
    resumed_from = started(command, run, 2)["resumed_from"]
    assert resumed_from >= 10
    keys = [argument for key in sorted(METRICS) for argument in ("--key", key)]
    metrics = command("metrics", run, *keys, "--all")["runs"][run]
    assert metrics.keys() == METRICS
    assert metrics["loss"]["steps"] == list(range(1, STEPS + 1))
    assert metrics["loss"]["last"] < metrics["loss"]["first"] - 1.0
    assert metrics["val_loss"]["steps"] == [40, 80, 120]
    reported = command("checkpoints", run, "--verify")
    assert [entry["step"] for entry in reported["checkpoints"]] == [100, 110, 120]
    assert all(entry.keys() == CHECKPOINT for entry in reported["checkpoints"])
    assert all(entry["verified"] for entry in reported["checkpoints"])
    assert reported["resume_from"] == STEPS
    _assert_it_writes_text(command, run)
    command("fetch", run, "final", str(tmp_path / "fetched"))
    assert (tmp_path / "fetched/manifest.json").exists()


def _assert_it_writes_text(command: CommandLine, run: str) -> None:
    """While it was trained, and now: of the final model, of a checkpoint, and the same again."""
    recorded = command("sample", run)["samples"]
    assert [(one["step"], one["untrusted_prompt"]) for one in recorded] == [
        (step, "def ") for step in (40, 80, 120)
    ]
    assert all(one["ended"] in ("max_tokens", "end_of_text") for one in recorded)
    asked = ("sample", run, "--prompt", "def ", "--max-tokens", "8", "--seed", "1337")
    written = command(*asked, "--count", "2")
    assert (written["path"], written["step"], len(written["samples"])) == ("final", STEPS, 2)
    assert written["samples"][0]["untrusted_text"] == recorded[-1]["untrusted_text"]
    earlier = command(*asked, "--from", "100", "--temperature", "0")
    assert (earlier["path"], earlier["step"]) == ("checkpoints/step-00000100", 100)
    assert earlier["samples"][0]["tokens"] <= 8
