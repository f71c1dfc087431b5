"""The interpreter that the preparation of an attempt has settled for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainer_runtime.core.config import RunConfig
from trainer_runtime.host.containers.container import Container, Image
from trainer_runtime.host.environment.training_python import TrainingPython
from trainer_runtime.host.files.resolved_environment import trainer_environment

ENVIRONMENT = "environment.json"


def settled_python(
    config: RunConfig, path: Path, run: Path, variables: Mapping[str, str]
) -> TrainingPython:
    """The interpreter for the config at `path`, within the folder of its `run`; its processes see
    these `variables` as well."""
    record = path.with_name(ENVIRONMENT)
    image = Image.find(record)
    python, environment = trainer_environment(record, config)
    container = None if image is None else Container(image, run, config, path, dict(variables))
    return TrainingPython(python, {**environment, **config.env, **variables}, container)
