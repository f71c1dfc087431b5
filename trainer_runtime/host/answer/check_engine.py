"""Checks the container engine that trainings with `compute.launcher: docker` would use."""

from __future__ import annotations

import os
from collections.abc import Iterator

from trainer_runtime.host.answer.check_row import Row
from trainer_runtime.host.containers.engine import NoEngineError, find_engine, installed

_NAME = "containers"


def engine() -> Iterator[Row]:
    """Which engine answers, or why none does; one that is not there is needed by nobody else."""
    if not installed(os.environ):
        yield Row(_NAME, "ok", "neither docker nor podman; only compute.launcher: docker needs one")
        return
    try:
        container_engine = find_engine(os.environ)
    except NoEngineError as error:
        remedy = (
            "Start its daemon, or let this account use it (for Docker, add it to the group "
            "docker); only compute.launcher: docker needs it."
        )
        yield Row(_NAME, "warn", str(error), remedy)
        return
    yield Row(_NAME, "ok", container_engine.label)
