"""Trains in a run's folder without a supervisor: `trainer_runtime train`, called by train.sh."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from trainer_runtime.box.files.layout import RunFolder
from trainer_runtime.box.files.resolved_environment import OPENMP, trainer_environment
from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.core.frameworks import command


def train(config_path: Path, *, this_python: bool) -> NoReturn:
    """Becomes the trainer of the run in the working folder.

    `this_python`: train with this interpreter, not with the one that the preparation settled.

    Raises:
        SystemExit: a trainer of this run lives.
    """
    run = RunFolder(Path())
    lock = try_lock(run.trainer_lock)
    if lock is None:
        sys.exit("A trainer of this run is running already.")
    # The trainer inherits it: as long as that lives, nobody starts another one in this folder.
    os.set_inheritable(lock, True)
    config = RunConfig.parse(config_path.read_bytes())
    for name, value in {**OPENMP, "OMP_NUM_THREADS": str(config.compute.threads)}.items():
        os.environ.setdefault(name, value)
    python, environment = _python(config, this_python=this_python)
    arguments = command(config, python, str(config_path))
    os.execve(python, arguments, {**environment, **config.env})


def _python(config: RunConfig, *, this_python: bool) -> tuple[str, dict[str, str]]:
    if this_python:
        return sys.executable, dict(os.environ)
    return trainer_environment(Path("environment.json"), config)
