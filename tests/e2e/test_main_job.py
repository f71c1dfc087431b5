"""The main job as its users do it: by the command line, and by the official MCP client."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client import ClientRequestContext
from mcp.types import ElicitRequestParams, ElicitResult
from support.host.torch_check_cache import torch_checks
from support.runs.light_run import lasting, light_spec
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    begin_with,
    processes_of,
    run_async,
    small_spec,
    standing_after,
    wait_until,
)

from trainer_runtime.core.files.durable import is_locked
from trainmaster.mcp.server import build_server


@pytest.fixture
def command(home: Path) -> CommandLine:
    """Each command in a process of its own."""
    return CommandLine(home, by_process=True)


def test_a_launch_outlives_its_command_and_any_process_reports_the_whole_truth(
    command: CommandLine, home: Path, tmp_path: Path
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(light_spec(tmp_path, *lasting(), steps="120"))
    launcher = command.start("launch", str(spec), "--json")
    run = json.loads(launcher.stdout.readline())["run_id"]  # type: ignore[union-attr]
    launcher.send_signal(signal.SIGKILL)
    launcher.communicate()

    bound = ("--until", "completed", "--timeout", str(LONGEST_S))
    waiting = command.start("wait", run, *bound, "--json")
    lines = read_by_cursor(CommandLine(home), run)
    ended = json.loads(waiting.communicate(timeout=LONGEST_S)[0])
    assert (ended["event"], ended["state"]) == ("completed", "completed")
    assert lines == command.folder(run).attempt(1).train_log.read_text().splitlines()
    status = command("status", run)
    assert (status["state"], status["step"], status["target_step"]) == ("completed", 120, 120)
    loss = command("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]
    assert loss["n"] == len(loss["steps"]) == len(loss["values"]) == 120
    assert loss["last"] < loss["first"]
    read = command("logs", run, "--limit", "5")
    assert len(read["lines"]) == 5
    assert command("logs", run, "--cursor", read["cursor"])["lines"] == []
    assert (
        command("wait", run, "--until", "failed", "--timeout", "5", code=3)["event"] == "completed"
    )


def read_by_cursor(command: CommandLine, run: str) -> list[str]:
    """A log's lines as they come, a few at a time, until the run has completed."""
    lines: list[str] = []
    cursor = "l1.train.1.0"
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline:
        ended = command("status", run)["state"] == "completed"
        answer = command("logs", run, "--cursor", cursor, "--limit", "3")
        lines, cursor = lines + answer["lines"], answer["cursor"]
        if ended and not answer["more"]:
            return lines
    raise AssertionError(f"not complete within {LONGEST_S:.0f} s")


@pytest.mark.long  # tests/host/supervise: test_supervisor_killed
def test_a_hung_up_terminal_and_a_dead_supervisor_change_nothing(
    command: CommandLine, tmp_path: Path
) -> None:
    run = command("launch", light_spec(tmp_path, *lasting(), steps="200"))["run_id"]
    folder = command.folder(run)
    whole = {"trainer", "hold", "supervisor"}
    found = wait_until(lambda: whole <= set(of := processes_of(folder)) and of, "all of them")
    os.kill(found["supervisor"], signal.SIGKILL)
    os.kill(found["hold"], signal.SIGHUP)
    wait_until(lambda: not is_locked(folder.supervisor_lock), "the supervisor's end")
    done = [step["did"] for step in command("tick")["runs"]]
    assert done == [["started the supervisor"]]
    ended = command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert ended["event"] == "completed"


@pytest.mark.long
def test_the_mcp_client_drives_a_real_training_over_stdio(home: Path, tmp_path: Path) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-c", "from trainmaster.cli import main; main()", "mcp"],
        env={**os.environ, "TRAINMASTER_HOME": str(home)},
    )
    env = begin_with(tmp_path / "standing", standing_after(200, 1))
    spec = small_spec(tmp_path, steps="5000", checkpoint="{every: 50}", env=env)
    torch_checks.lend(home / "local")
    asked_of_user: list[str] = []

    async def agree(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked_of_user.append(params.message)
        return ElicitResult(action="accept", content={"agree": True})

    async def work() -> None:
        async with Client(server, mode="legacy", elicitation_callback=agree) as client:

            async def call(tool: str, **arguments: Any) -> dict[str, Any]:
                result = await client.call_tool(tool, arguments)
                assert not result.is_error, result.content
                return dict(result.structured_content or {})

            async def wait_for(event: str, cursor: str) -> dict[str, Any]:
                asked: dict[str, Any] = {"run_id": run, "until": [event], "timeout_s": 40}
                answer = await call("wait_for_event", **asked, cursor=cursor)
                for _ in range(5):
                    if answer["event"] == "timeout":
                        answer = await call("wait_for_event", **asked, cursor=answer["cursor"])
                return answer

            planned = await call("plan_run", spec=spec)
            assert planned["estimates"]["parameters"] > 0
            launched = await call("launch", spec=spec, idempotency_key="first")
            run = launched["run_id"]
            assert (await call("launch", spec=spec, idempotency_key="first"))["run_id"] == run
            waited = await wait_for("checkpoint", launched["cursor"])
            assert waited["event"] == "checkpoint"
            metrics = await call("query_metrics", run_id=[run], key=["loss"])
            assert next(iter(metrics["runs"].values()))["loss"]["n"] >= 50
            assert (await call("tail_log", run_id=run))["lines"]
            await call("stop", run_id=run)
            ended = await wait_for("end", waited["cursor"])
            assert ended["event"] == "stopped"
            checkpoints = await call("list_checkpoints", run_id=run)
            assert checkpoints["resume_from"] == ended["step"]
            changed = [f"steps={ended['step'] + 20}"]
            resumed = await call("resume", run_id=run, set=changed)
            assert resumed["attempt"] == 2
            ended = await wait_for("completed", resumed["cursor"])
            assert ended["event"] == "completed"
            reported = await call("get_run", run_id=run)
            assert (reported["state"], reported["attempt"]) == ("completed", 2)

    run_async(work)
    (question,) = asked_of_user  # the test's own code in the trainer, and nothing else
    assert "PYTHONPATH" in question


def test_the_server_builds_without_a_home(tmp_path: Path) -> None:
    assert build_server({"TRAINMASTER_HOME": str(tmp_path / "none")}) is not None
    assert not (tmp_path / "none").exists()


def test_the_demo_ends_well_and_shows_what_it_promises(
    command: CommandLine, tmp_path: Path
) -> None:
    # What it kills half-way stands there: on a busy machine it would be over before.
    begin_with(tmp_path / "standing", standing_after(28, 1))
    command.environment["PYTHONPATH"] = str(tmp_path / "standing")
    command.environment["OMP_WAIT_POLICY"] = "passive"  # its threads share processors with others
    process = command.start("demo", "--steps", "32", "--json")
    output, errors = process.communicate(timeout=900)  # half a minute; minutes on a busy machine
    assert process.returncode == 0, (output, errors)
    reported = json.loads(output)
    assert reported["killed_at_step"] > reported["resumed_from_step"] > 0
    assert reported["steps_repeated_bit_for_bit"] > 0
    assert reported["sample"].startswith("def ")
    advised = next(line for line in errors.splitlines() if line.startswith("Next: "))
    assert Path(shlex.split(advised)[1]).is_absolute(), advised
    own = next(line for line in errors.splitlines() if "FOLDER/OF/TEXTS" in line)
    words = shlex.split(own.replace("/FOLDER/OF/TEXTS", str(tmp_path)))
    words[words.index("launch")] = "plan"
    (tmp_path / "text.txt").write_text("Some text of one's own. " * 4000)
    planned = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert "Plan for mine" in planned.stdout, (planned.stdout, planned.stderr)
