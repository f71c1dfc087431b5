"""Phases of a rehearsal: judged as a real training's, and what is said of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from support.mcp.mcp_client import answer_of, connected
from support.runs.running_run import LONGEST_S, CommandLine, small_spec, wait_until

# The rehearsal's held-out loss is 2 + 4 exp(-step / 50): 4.68 at step 20, 3.80 at 40.
MET, MISSED = "{metric: val_loss, below: 5.0}", "{metric: val_loss, below: 3.0}"


def phases(on_miss: str = "warn") -> str:
    return (
        f"[{{name: base, steps: 20, success: {MET}}}, "
        f"{{name: hard, steps: 20, lr: 0.001, success: {MISSED}, on_miss: {on_miss}}}, "
        "{name: anneal, steps: 10, lr: {to: 0}}]"
    )


def rehearsed(command: CommandLine, folder: Path, on_miss: str = "warn") -> dict[str, Any]:
    steps = {"phases": phases(on_miss), "host": "debug"}
    lines = small_spec(folder, **steps).splitlines()
    spec = "\n".join(line for line in lines if not line.startswith("steps:"))
    run = command("launch", spec)["run_id"]
    ended: dict[str, Any] = command("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    return ended


def test_a_missed_phase_that_only_warns_is_a_finding_and_an_alert(
    command: CommandLine, tmp_path: Path
) -> None:
    command.home.mkdir(exist_ok=True)
    to_file = f"{{kind: command, command: [tee, {tmp_path / 'alerted.json'}]}}"
    (command.home / "settings.yaml").write_text(f"destinations:\n  ops: {to_file}\n")
    command("alerts", "add", "--when", "finding phase_missed", "--to", "ops")
    ended = rehearsed(command, tmp_path)
    run = ended["run_id"]
    assert ended["state"] == "completed"
    (finding,) = command("diagnose", run)["findings"]
    assert (finding["code"], finding["severity"]) == ("phase_missed", "warning")
    assert finding["step"] == 40
    assert "phase hard ended after step 40" in finding["evidence"]
    assert "the checkpoint of its start is that of step 20" in finding["evidence"]
    assert any("--set phases.NAME.steps" in advice for advice in finding["advice"])
    messages = wait_until(lambda: command("alerts", "list", run).get("messages"), "an alert")
    assert "phase_missed" in str(messages)


@pytest.mark.parametrize(("on_miss", "step"), [("stop", 40), ("rollback", 40), ("extend", 60)])
def test_a_rehearsal_acts_on_a_missed_phase_as_a_training_does(
    command: CommandLine, tmp_path: Path, on_miss: str, step: int
) -> None:
    ended = rehearsed(command, tmp_path, on_miss)
    assert (ended["state"], ended["step"]) == ("stopped", step)
    assert command("diagnose", ended["run_id"])["findings"] == []


def test_metrics_report_each_phase_on_both_faces(command: CommandLine, tmp_path: Path) -> None:
    run = rehearsed(command, tmp_path)["run_id"]
    table = command("metrics", run)["phases"]
    assert table["phase"] == ["base", "hard", "anneal"]
    assert (table["first_step"], table["last_step"]) == ([1, 21, 41], [20, 40, 50])
    assert table["n"] == [20, 20, 10] and table["tokens"] == [20 * 256, 20 * 256, 10 * 256]
    assert table["first"] > table["last"] >= table["min"]
    assert (table["lr_low"][1], table["lr_high"][1]) == (0.001, 0.001)
    assert table["lr_low"][2] == 0 and table["lr_high"][2] < 0.001

    async def over_mcp() -> None:
        async with connected({"TRAINMASTER_HOME": str(command.home)}) as client:
            answer = await answer_of(client, "query_metrics", run_id=[run])
            assert answer["phases"] == table

    anyio.run(over_mcp)
