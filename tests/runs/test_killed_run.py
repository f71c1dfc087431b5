"""A trainer that is killed from outside: which signal, at which step, and from where it resumed."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
from support.mcp.mcp_client import answer_of, connected
from support.runs.light_run import light_spec, standing
from support.runs.running_run import LONGEST_S, CommandLine, kill, processes_of


def test_a_kill_is_reported_with_its_signal_its_step_and_the_resume(
    command: CommandLine, tmp_path: Path
) -> None:
    run = command("launch", light_spec(tmp_path, *standing(30)))["run_id"]
    command("wait", run, "--until", "step:30", "--timeout", str(LONGEST_S))
    kill(processes_of(command.folder(run))["trainer"])
    command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    findings = command("diagnose", run, "--all")["findings"]
    assert "ended by signal 9 (SIGKILL)" in findings[0]["explanation"], findings
    past = re.compile(r"1 over: (sigkill|host_oom) at 30; resumed from 20")
    assert past.fullmatch(command("status", run)["past"])

    async def over_mcp() -> None:
        async with connected(command.environment) as client:
            assert past.fullmatch((await answer_of(client, "diagnose", run_id=run))["past"])

    anyio.run(over_mcp)
