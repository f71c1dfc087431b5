"""Rehearsals of a small program, healthy or with a fault, several at once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.runs.light_run import REPOSITORY
from support.runs.running_run import CommandLine, run_async

from trainmaster.runs.launch.rehearse import Rehearsal, launch_rehearsal
from trainmaster.sync.workspace import open_workspace

_FILES = (
    REPOSITORY / "tests/support/programs/rehearsed_training.py",
    REPOSITORY / "templates/script/report.py",
)


def program_spec(folder: Path, name: str, *words: str) -> str:
    """A spec of the program with these words."""
    program = folder / "program"
    program.mkdir(parents=True, exist_ok=True)
    for file in _FILES:
        shutil.copy(file, program)
    script = {
        "path": str(program),
        "command": ["python3", "rehearsed_training.py", *words],
        "resume": ["--resume", "{checkpoint}"],
        "checkpoints": {"path": "out/step-*.json"},
        "final": "out/final",
    }
    return (
        f"name: {name}\nframework: script\nscript: {json.dumps(script)}\nsteps: 5000\n"
        "compute: {gpus: 0}\nlimits: {max_runtime: 10m}\n"
    )


def rehearse_all(command: CommandLine, specs: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The reports of rehearsals (smoke only) of these specs, all at once, by the specs' keys."""

    async def begin() -> dict[str, str]:
        runs = {}
        with open_workspace(command.environment) as workspace:
            for key, spec in specs.items():
                answer = await launch_rehearsal(workspace, spec, Rehearsal("smoke"))
                runs[key] = answer.run_id
            await workspace.disconnect()
        return runs

    return {key: report(command, run) for key, run in run_async(begin).items()}


def report(command: CommandLine, run: str) -> dict[str, Any]:
    """The report of one that was started, once it has ended."""
    command("wait", run, "--until", "end", "--timeout", "240")
    verdict = command("status", run)["rehearsal"]["verdict"]
    return command("rehearse", "--report", run, code=3 if verdict == "failed" else 0)


def verdicts(report: Mapping[str, Any]) -> dict[str, str]:
    """The verdict of each check."""
    return {check["name"]: check["verdict"] for check in report["checks"]}
