"""`diagnose` and `resume --apply` by the command line and by the official MCP client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from support.core.failure_samples import FAILURES
from support.runs.planted_runs import HALVED, finding, plant
from support.runs.running_run import small_spec

from trainmaster.cli import run as command_line
from trainmaster.mcp import build_server
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.launch.launch import launch
from trainmaster.sync.workspace import Workspace

_OOM = finding("0a0a0a0a", patches=[HALVED])
_FAILS = '{TRAINMASTER_STEP_S: "0", TRAINMASTER_FAULTS: "unusable@45"}'


@pytest.fixture
def failed(workspace: Workspace, tmp_path: Path) -> str:
    """A simulated run whose host found that memory was exhausted."""

    async def work() -> str:
        spec = small_spec(tmp_path, host="debug", env=_FAILS)
        run = (await launch(workspace, spec)).run_id
        await wait_for_event(workspace, run, until=["end"], timeout_s=60)
        await plant(workspace, run, _OOM)
        return run

    return anyio.run(work)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text("step 9 loss 2.0\n" + FAILURES["cuda_oom"][0] + "\n")
    return path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert command_line(arguments) == code
    return capsys.readouterr().out


async def called(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    content = result.structured_content
    assert content is not None
    return content


def test_people_read_cause_evidence_advice_and_patch(
    failed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, "diagnose", failed)
    assert text.startswith("CRITICAL cuda_oom at step 41 in attempt 1 (0a0a0a0a, 90 % sure)\n")
    assert "  > CUDA out of memory" in text
    assert "  - Check which processes use the GPU's memory (nvidia-smi)." in text
    change = "batch.micro_batch: 8 -> 4, batch.accumulation: 1 -> 2; from latest"
    assert f"  Patch halve_micro_batch: {change}\n" in text
    assert f" resume {failed} --apply 0a0a0a0a:halve_micro_batch" in text


def test_a_healthy_file_has_nothing_wrong_for_people(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    healthy = tmp_path / "healthy.log"
    rows = [f"step {step}/100 loss {3 - step / 100:.3f}\n" for step in range(1, 101)]
    healthy.write_text("".join(rows))
    assert "Nothing is wrong" in printed(capsys, "diagnose", str(healthy))
    healthy.write_text("".join(rows[:60]).replace("/100", ""))
    text = printed(capsys, "diagnose", str(healthy))
    assert "Nothing is wrong" not in text and "no closing line" in text
    healthy.write_text("step 9 loss 2.0\n" * 100)
    assert "Only 1 training loss was read" in printed(capsys, "diagnose", str(healthy))
    healthy.write_text("installed 3 packages in 4 s\n")
    text = printed(capsys, "diagnose", str(healthy))
    assert "Nothing is wrong" not in text and "nothing was understood" in text


@pytest.mark.slow
def test_a_tool_answers_what_the_command_prints(
    failed: str, log: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def answers() -> list[dict[str, Any]]:
        async with Client(build_server({"TRAINMASTER_HOME": str(home)})) as client:
            return [await called(client, "diagnose", run_id=name) for name in (failed, str(log))]

    for name, answer in zip((failed, str(log)), anyio.run(answers), strict=True):
        same = json.loads(printed(capsys, "diagnose", name, "--json"))
        advice = [one.pop("next_step", "") for one in (same, answer)]  # each names its own face's
        assert same == answer
        assert [len(text) > 0 for text in advice] == [name == failed] * 2
        (found,) = answer["findings"]
        assert found["code"] == "cuda_oom"
        for patch in found["patches"]:
            assert {"id", "set", "from", "keeps_batch"} <= set(patch)


def test_a_patch_is_applied_through_the_tool(failed: str, home: Path) -> None:
    async def scenario() -> None:
        async with Client(build_server({"TRAINMASTER_HOME": str(home)})) as client:
            (found,) = (await called(client, "diagnose", run_id=failed))["findings"]
            apply = f"{found['id']}:{found['patches'][0]['id']}"
            resumed = await called(client, "resume", run_id=failed, apply=apply)
            assert resumed["attempt"] == 2
            await called(client, "wait_for_event", run_id=failed, until=["end"], timeout_s=40)
            status = await called(client, "get_run", run_id=failed, detail=True)
            assert status["attempts"][1]["changed"]["batch.micro_batch"] == [8, 4]
            assert status["findings"] == []
            assert (await called(client, "diagnose", run_id=failed))["findings"] == []
            everything = await called(client, "diagnose", run_id=failed, everything=True)
            assert [one["over"] for one in everything["findings"]] == [True]

    anyio.run(scenario)


def test_the_command_applies_a_patch_and_status_shows_what_it_changed(
    failed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printed(capsys, "resume", failed, "--apply", "cuda_oom")
    printed(capsys, "wait", failed, "--until", "end", "--timeout", "240")
    text = printed(capsys, "status", failed, "--detail")
    by = "(by patch:0a0a0a0a:halve_micro_batch: cuda_oom)"
    assert f"Attempt 2: batch.micro_batch: 8 -> 4 {by}" in text


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["diagnose", "no-such-run"], "RUN_NOT_FOUND"),
        (["diagnose", "/"], "LOG_NOT_READABLE"),
        (["resume", "RUN", "--apply", "ffffffff"], "FINDING_UNKNOWN"),
        (["resume", "RUN", "--apply", "0a0a0a0a:shorter_sequence"], "PATCH_UNKNOWN"),
    ],
)
def test_what_can_not_be_done_is_reported_with_its_code(
    failed: str, capsys: pytest.CaptureFixture[str], arguments: list[str], error: str
) -> None:
    named = [failed if word == "RUN" else word for word in arguments]
    error_row = json.loads(printed(capsys, *named, "--json", code=1))["error"]
    assert error_row["code"] == error
    assert error_row["fix"]
