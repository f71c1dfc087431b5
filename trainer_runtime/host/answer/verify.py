"""Reads every byte of every checkpoint of a run, and says what is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainer_runtime.core.files.checkpoint_check import check_checkpoints
from trainer_runtime.host.files.layout import RunFolder


def verify_checkpoints(folder: Path) -> dict[str, Any]:
    """`{"checkpoints": [{"step", "path", "problems"}]}`, by step; no problems means whole."""
    checks = check_checkpoints(RunFolder(folder).checkpoints)
    return {"checkpoints": [check.to_dict() for check in checks]}
