"""The learning-rate schedule behind a resume: continued, unless it is asked to be laid again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.mcp.mcp_client import answer_of, connected
from support.runs.running_run import CommandLine

from trainer_runtime.core.config.lr_schedule import SCHEDULES, lr_factor
from trainer_runtime.core.config.optimization import ScheduleConfig
from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.policy.patch import apply_sets
from trainmaster.plan.changes.schedule import rate_in_words, sets_of_schedule

_SPEC = """\
name: rehearsal
framework: FRAMEWORK
model: {n_layer: 1, n_head: 2, d_model: 32}
data: {sources: [{path: CORPUS}], seq_len: 32}
batch: {tokens: 256}
steps: 40
optimizer: {lr: 0.001}
host: debug
"""


def _config(kind: str = "cosine", **schedule: Any) -> dict[str, Any]:
    laid = {"kind": kind, "warmup_steps": 4, "min_lr_ratio": 0.1, "steps": None, **schedule}
    return {"steps": 200, "optimizer": {"lr": 0.001}, "schedule": laid}


def _longer(config: dict[str, Any], steps: int, warmup_steps: int) -> dict[str, Any]:
    return apply_sets(config, {"steps": steps, "schedule.warmup_steps": warmup_steps})


def _continued(config: dict[str, Any], *asked: str, steps: int = 20_000) -> dict[str, Any]:
    after = _longer(config, steps, 400)  # as planned again
    items = sets_of_schedule([f"steps={steps}", *asked], config, after)
    return apply_sets(after, {k: json.loads(v) for k, _, v in (i.partition("=") for i in items)})


def _rate(config: dict[str, Any], step: int) -> float:
    schedule = ScheduleConfig.of(Fields(config["schedule"], "test"))
    length = schedule.length(config["steps"])
    return lr_factor(schedule.kind, step, length, schedule.warmup_steps, schedule.min_lr_ratio)


@pytest.mark.parametrize("kind", SCHEDULES)
def test_the_rate_continues_from_where_it_stood_for_every_shape(kind: str) -> None:
    before = _config(kind)
    after = _continued(before)
    assert _rate(after, 201) == pytest.approx(_rate(before, 200), rel=0.01)
    assert _rate(_continued(after, steps=30_000), 201) == _rate(after, 201)  # and once more


def test_a_schedule_that_is_asked_for_is_laid_again() -> None:
    assert _continued(_config(), "schedule.steps=null")["schedule"]["steps"] is None
    assert _continued(_config(), "schedule={}") == _longer(_config(), 20_000, 400)
    assert _continued(_config(), "schedule.warmup_steps=9")["schedule"]["warmup_steps"] == 400


def test_a_run_of_an_earlier_version_keeps_what_it_has() -> None:
    before = _config()
    del before["schedule"]["steps"]
    after = _continued(before)
    assert after["schedule"] == before["schedule"]
    words = rate_in_words(before, {"steps": 20_000}, 200)
    assert words is not None and "Steps 200 -> 20,000; learning rate 0.0001 at step 200" in words


@pytest.mark.parametrize("framework", ["nanogpt", "litgpt", "hf"])
def test_what_changes_is_said_at_the_resume(
    command: CommandLine, tmp_path: Path, framework: str
) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "text.txt").write_text("A line of text to learn from.\n" * 400)
    text = _SPEC.replace("FRAMEWORK", framework).replace("CORPUS", str(tmp_path / "corpus"))
    spec = tmp_path / "spec.yaml"
    spec.write_text(text)
    run = command("launch", str(spec))["run_id"]
    assert command("wait", run, "--until", "end", "--timeout", "60")["event"] == "completed"
    code, shown, _ = command._here("resume", run, "--set", "steps=4000")
    assert code == 0
    said = "Steps 40 -> 4,000; learning rate 0.0001 at step 40 -> 0.0001 at step 41, 0.0001 at "
    assert said in " ".join(shown.split())
    assert "--set schedule.steps=null" in shown
    command("stop", run)
    command("wait", run, "--until", "end", "--timeout", "60")

    async def by_tool() -> None:
        async with connected(command.environment) as client:
            sets = ["steps=5000", "schedule.steps=null"]
            note = (await answer_of(client, "resume", run_id=run, set=sets))["note"]
            assert "Steps 4,000 -> 5,000; learning rate 0.0001 at step " in note
            assert "The schedule keeps" not in note
            await answer_of(client, "stop", run_id=run)

    anyio.run(by_tool)
