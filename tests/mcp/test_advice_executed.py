"""Advice of answers and run states is executed as each face gives it, placeholders filled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from support.errors.executed_advice import ExecutedAdvice
from support.mcp.mcp_client import connected
from support.runs.running_run import CommandLine

_SPEC = """\
name: adv
framework: nanogpt
model: {n_layer: 1, n_head: 2, d_model: 32}
data: {sources: [{path: CORPUS}], seq_len: 32}
batch: {tokens: 256}
steps: 40
eval: {every_steps: 20, batches: 2}
checkpoint: {every: 20}
host: debug
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "text.txt").write_text("A line of text to learn from.\n" * 400)
    path = tmp_path / "a spec.yaml"  # quoted differently by each face
    path.write_text(_SPEC.replace("CORPUS", str(tmp_path / "corpus")))
    return str(path)


def test_what_answers_and_run_states_advise_is_executed_on_both_faces(
    command: CommandLine, spec: str, tmp_path: Path
) -> None:
    executed = ExecutedAdvice(command, spec, tmp_path / "fetched")
    line = executed.of_command_line
    line(command("overview"))
    line(command("plan", spec, "--set", "optimizer.lr=0.002"))
    line(command("plan", spec, "--set", "steps=x", code=1))
    line(command("status", "nobody", code=1))
    line(command("alerts", "add", "--when", "state failed", code=1))
    launched = command("launch", spec)
    run = launched["run_id"]
    line(launched)
    line(command("status", run))  # while it runs, or is paused
    assert command("wait", run, "--until", "end", "--timeout", "60")["event"] == "completed"
    for words in (("status", run), ("diagnose", run), ("overview",), ("checkpoints", run)):
        line(command(*words))
    line(command("resume", run, code=1))
    unsampled = command("sample", run, "--prompt", "to be", code=1)
    assert run in unsampled["error"]["fix"]
    line(unsampled)
    stopping = command("launch", spec, "--set", 'env.TRAINMASTER_STEP_S="30"')
    line(command("stop", stopping["run_id"]))
    line(command("status", stopping["run_id"]))
    line(command("overview"))
    assert {words.split()[3] for words in executed.lines} >= {"launch", "wait", "runs", "fetch"}
    assert any("'" in words for words in executed.lines)  # a path with a space

    async def by_tools() -> None:
        async with connected(command.environment) as client:

            async def tried(tool: str, **arguments: Any) -> None:
                result = await client.call_tool(tool, arguments)
                text = result.content[0].text  # type: ignore[union-attr]
                await executed.of_tools(client, result.structured_content or {"fix": text})

            await tried("overview")
            await tried("plan_run", spec=spec, set=["optimizer.lr=0.002"])
            await tried("get_run", run_id="nobody")
            await tried("get_run", run_id=run)
            await tried("diagnose", run_id=run)
            await tried("resume", run_id=run)
            await tried("get_run", run_id=stopping["run_id"])
            await tried("stop", run_id=stopping["run_id"])

    anyio.run(by_tools)
    assert {call.partition("(")[0] for call in executed.calls} >= {"launch", "list_runs"}
