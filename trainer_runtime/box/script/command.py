"""A program's command line and variables for one attempt."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainer_runtime.box.files.layout import RunFolder
from trainer_runtime.box.script.beginning import Beginning
from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.config.script import ScriptConfig

_PLACEHOLDER = re.compile(
    r"\{(gpus|processes|run_dir|run_id|seed|checkpoint|step|data(?:\.[\w.-]+)?)\}"
)
_PYTHON = re.compile(r"python[0-9.]*")


def command_of(
    run: RunFolder, config: RunConfig, script: ScriptConfig, beginning: Beginning
) -> list[str]:
    """The words, with those to continue where there is a checkpoint."""
    words = list(script.command)
    if beginning.checkpoint is not None:
        words += script.resume or ()
    values = {
        "gpus": str(config.compute.gpus or 0),
        "processes": str(config.compute.processes),
        "run_dir": str(run.root),
        "run_id": run.run_id,
        "seed": str(config.seed),
        "checkpoint": str(beginning.checkpoint or ""),
        "step": str(beginning.step),
        **{f"data.{name}": str(run.root / path) for name, path in script.data.items()},
    }
    if len(script.data) == 1:
        values["data"] = str(run.root / next(iter(script.data.values())))
    return [
        _PLACEHOLDER.sub(lambda found: values.get(found.group(1), found.group()), word)
        for word in words
    ]


def variables_of(
    run: RunFolder, beginning: Beginning, events: Path, stop: Path, python: str | None
) -> dict[str, str]:
    """The program's environment. `python`: the interpreter that was prepared for it, if one was;
    its folder comes first on the search path."""
    found = {
        **os.environ,
        "TRAINMASTER_RUN_DIR": str(run.root),
        "TRAINMASTER_RUN_ID": run.run_id,
        "TRAINMASTER_EVENTS": str(events),
        "TRAINMASTER_STOP": str(stop),
    }
    if beginning.checkpoint is not None:
        found["TRAINMASTER_CHECKPOINT"] = str(beginning.checkpoint)
        found["TRAINMASTER_STEP"] = str(beginning.step)
    if python is not None:
        found["PATH"] = os.pathsep.join([str(Path(python).parent), found.get("PATH", os.defpath)])
    return found


def program_of(words: Sequence[str], base: Path, variables: Mapping[str, str]) -> str | None:
    """The path of the program that the first word names: seen from its folder, or on its search
    path; None where it is not there."""
    name = words[0]
    if "/" in name:
        path = base / name
        return str(path) if os.access(path, os.X_OK) and path.is_file() else None
    return shutil.which(name, path=variables.get("PATH"))


def python_of(program: str, variables: Mapping[str, str]) -> str:
    """An interpreter that may have what the program has: it opens archives."""
    if _PYTHON.fullmatch(Path(program).name):
        return program
    beside = Path(program).with_name("python")  # as torchrun and accelerate lie beside theirs
    if os.access(beside, os.X_OK):
        return str(beside)
    return shutil.which("python3", path=variables.get("PATH")) or sys.executable
