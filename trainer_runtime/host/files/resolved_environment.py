"""The environment that the preparation resolved for the trainer: interpreter and variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from trainer_runtime.core.config import RunConfig
from trainer_runtime.host.files.files import read_json

Changes = dict[str, "str | None"]

# OpenMP threads that wait spin 300,000 rounds before they sleep: beside one other busy process a
# step of 32 ms then took 545. With 10,000 rounds it took about 100, and alone 32 as before.
OPENMP = {"GOMP_SPINCOUNT": "10000"}


def trainer_environment(record: Path, config: RunConfig) -> tuple[str, dict[str, str]]:
    """The trainer's interpreter and environment; `record` is the attempt's `environment.json`.

    Without one the config counts, as it did in earlier versions.
    """
    settled = read_json(record)
    if settled is not None:
        return str(settled["python"]), applied(os.environ, settled.get("variables") or {})
    python = config.environment.python if config.environment is not None else None
    return python or sys.executable, dict(os.environ)


def applied(environment: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """The environment with the changes made; None removes a variable."""
    merged = dict(environment)
    for name, value in changes.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = value
    return merged
