"""Reads every byte of every checkpoint of a run, and says what is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainer_runtime.box.files.layout import RunFolder
from trainer_runtime.core.files.manifest import verify


def verify_checkpoints(folder: Path) -> dict[str, Any]:
    """`{"checkpoints": [{"step", "path", "problems"}]}`, by step; no problems means whole."""
    found = []
    checkpoints = RunFolder(folder).checkpoints
    for path in sorted(checkpoints.glob("step-*")) if checkpoints.is_dir() else []:
        if path.is_dir() and path.name[5:].isdigit():
            found.append(
                {
                    "step": int(path.name[5:]),
                    "path": path.relative_to(folder).as_posix(),
                    "problems": verify(path),
                }
            )
    return {"checkpoints": found}
