"""How the ranks of a training are started: the command line, and the files that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def files(config: Mapping[str, Any]) -> dict[str, str]:
    """What the launcher of several ranks reads; nothing for a single process."""
    return {}


def processes(config: Mapping[str, Any]) -> int:
    """How many ranks of a training run on this machine."""
    return int(config.get("compute", {}).get("processes") or 1)


def command(config: Mapping[str, Any], python: str, config_path: str) -> list[str]:
    """What starts an attempt, in the run's folder; `config_path` as seen from there."""
    return [python, "train.py", config_path]
