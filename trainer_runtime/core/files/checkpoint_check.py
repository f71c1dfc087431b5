"""Reading every byte of a run's checkpoints, and what that finds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.decoding import JsonRecord
from trainer_runtime.core.files.manifest import verify
from trainer_runtime.core.files.reading import check_reading

_FOLDER = re.compile(r"step-([0-9]+)")


@dataclass(frozen=True, slots=True)
class CheckpointCheck(JsonRecord):
    """A checkpoint that was read; `path` is relative to the run's folder. No `problems`: it is
    what its manifest says."""

    step: int
    path: str
    problems: tuple[str, ...]


def check_checkpoints(checkpoints: Path) -> list[CheckpointCheck]:
    """Every checkpoint in the folder `checkpoints` of a run, by step."""
    checks = []
    for path in sorted(checkpoints.glob("step-*")) if checkpoints.is_dir() else []:
        check_reading()
        name = _FOLDER.fullmatch(path.name)
        if name is not None and path.is_dir():
            relative = f"{checkpoints.name}/{path.name}"
            checks.append(CheckpointCheck(int(name[1]), relative, tuple(verify(path))))
    return checks
