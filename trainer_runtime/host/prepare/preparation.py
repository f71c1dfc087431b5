"""Prepares an attempt: setup script, environment, model, adopted checkpoint, data.

`python3 -m trainer_runtime prepare CONFIG`, in the run's folder. One at a time per run; whatever is
done is not done again, so that it may be killed at any moment and started again.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.files.corpus import ROWS, SHARDS
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.host.containers.container import Container, Image
from trainer_runtime.host.environment.environment import Box, required_lines, settle
from trainer_runtime.host.environment.image import find_image
from trainer_runtime.host.environment.image_trial import ImageRequest, settle_image
from trainer_runtime.host.environment.installers import (
    EnvironmentUnavailableError,
    EnvironmentUnusableError,
)
from trainer_runtime.host.environment.modules import load_modules
from trainer_runtime.host.environment.training_python import (
    InputUnavailableError,
    InputUnusableError,
    TrainingPython,
)
from trainer_runtime.host.files.files import read_json, write_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.files.resolved_environment import applied, trainer_environment
from trainer_runtime.host.prepare import adopt_checkpoint, cache_roots
from trainer_runtime.host.prepare.code import CodeUnusableError, place_code
from trainer_runtime.host.prepare.inputs import settle_inputs
from trainer_runtime.host.prepare.shards import prepare
from trainer_runtime.host.prepare.sources import DataUnusableError, await_listed
from trainer_runtime.host.prepare.uploads import NothingComesError, await_wheels
from trainer_runtime.host.processes.commands import Report, follow
from trainer_runtime.host.processes.hold import marked

SETUP = "setup.sh"
ENVIRONMENT = "environment.json"
_LOCK = ".preparation.lock"
_RETRY = 1
_UNUSABLE = (
    CodeUnusableError,
    DataUnusableError,
    EnvironmentUnusableError,
    InputUnusableError,
    NothingComesError,
    adopt_checkpoint.NotAdoptedError,
)
_NOT_NOW = (EnvironmentUnavailableError, InputUnavailableError, adopt_checkpoint.NotAdoptedYetError)


def main(config_path: str, *, data_only: bool = False) -> int:
    """Prepare what a config asks for; progress goes to stdout. The exit code.

    `data_only` leaves the environment to the caller.
    """
    path = Path(config_path)
    try:
        config = RunConfig.parse(path.read_bytes(), str(path))
        with _locked(Path.cwd() / _LOCK):
            if not data_only:
                _register(Path.cwd(), config)
                _prepare_environment(config, path, _say)
            python = _python(config, None if data_only else path)
            settle_inputs(config, _say, python)
            place_code(config, Path.cwd(), _say)
            adopt_checkpoint.take_over(config, path, Path.cwd(), python, _say)
            ready = _prepare_data(config, python)
    except (OSError, ValueError) as error:
        return _failed(f"{config_path} can't be prepared: {error}", ExitCode.UNUSABLE)
    except _UNUSABLE as error:
        return _failed(str(error), ExitCode.UNUSABLE)
    except _NOT_NOW as error:
        return _failed(f"{error}; it may work later", _RETRY)
    _say(f"data: ready in {ready}")
    return 0


def _python(config: RunConfig, path: Path | None) -> TrainingPython:
    """The interpreter that was settled for the config at `path`, ours where none is for a
    trainer."""
    if path is None:
        return TrainingPython(sys.executable)
    record = path.with_name(ENVIRONMENT)
    image = Image.find(record)
    python, environment = trainer_environment(record, config)
    variables = {**environment, **config.env, **marked(config)}
    container = None if image is None else _container(image, config, path)
    return TrainingPython(python, variables, container)


def _container(image: Image, config: RunConfig, path: Path) -> Container:
    return Container(image, Path.cwd(), config, path, marked(config))


def _prepare_data(config: RunConfig, python: TrainingPython) -> str:
    """What the trainer reads, made first where need be; where that is.

    Raises:
        DataUnusableError, InputUnusableError: it can't be trained on.
        InputUnavailableError: not now.
    """
    if config.script is not None:
        return config.script.folder
    form = config.data.form or SHARDS
    if form == SHARDS:
        return str(prepare(config, _say, python))
    await_listed(config, _say)
    if form == ROWS:
        _say("data: reading the rows")
        python.run("prepare_rows", config.document, _say)
    return ", ".join(source.path for source in config.data.inputs)


def _say(line: str) -> None:
    print(line, flush=True)


def _failed(what: str, code: int) -> int:
    print(f"prepare: {what}", file=sys.stderr, flush=True)
    return code


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One preparation of a run at a time: a supervisor that was killed leaves its own running."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _register(folder: Path, config: RunConfig) -> None:
    """Have the cache know of the root that the run lies in; one that is only read needs no care."""
    with suppress(OSError):
        cache_roots.register(Path(config.data.cache_dir), RunFolder(folder).runs)


def _prepare_environment(config: RunConfig, path: Path, report: Report) -> None:
    """Write `environment.json` beside the config: the interpreter that is to train and what its
    environment needs."""
    request, record = config.environment, path.with_name(ENVIRONMENT)
    if config.attempt.is_recorded and _is_settled(record):
        return
    if config.compute.is_contained:
        _prepare_image(config, path, report)
        return
    if request is None:
        return
    folder = Path.cwd()
    variables = {**os.environ, **config.env, **marked(config)}
    if request.setup:
        _run_setup(folder, variables, report)
    changes: dict[str, str | None] = {}
    if request.modules:
        changes = load_modules(request.modules, variables, folder, report)
        variables = applied(variables, changes)
    if request.wheels_from is not None:
        await_wheels(config, report)
    box = Box(
        folder=folder,
        cache=Path(config.data.cache_dir).absolute(),  # an installer works elsewhere
        device=config.compute.device,
        variables=variables,
        report=report,
    )
    report("environment: searching for a usable one")
    settled = settle(request, box)
    write_json(record, {**settled, "variables": changes})
    report(f"environment: ready, {settled['python']} ({settled['how']})")


def _prepare_image(config: RunConfig, path: Path, report: Report) -> None:
    folder, request = Path.cwd(), config.environment
    image = find_image(config.compute.image or "", folder, report)
    lines = [] if request is None else required_lines(request, folder)
    cache = Path(config.data.cache_dir)
    asked = ImageRequest(_container(image, config, path), lines, cache, report)
    settled = settle_image(asked)
    write_json(path.with_name(ENVIRONMENT), {**settled, "variables": {}})
    report(f"environment: ready, {settled['python']} ({settled['how']})")


def _is_settled(record: Path) -> bool:
    """Whether an earlier preparation of the same attempt came as far as this."""
    settled = read_json(record)
    if settled is None:
        return False
    return "container" in settled or os.access(str(settled.get("python")), os.X_OK)


def _run_setup(folder: Path, variables: Mapping[str, str], report: Report) -> None:
    if not (folder / SETUP).is_file():
        raise EnvironmentUnusableError(f"the run's folder has no {SETUP}")
    report("setup: running setup.sh")
    ended = follow(["sh", SETUP], report, label="setup", folder=folder, environment=variables)
    if ended.code != 0:
        raise EnvironmentUnusableError(
            f"environment.setup ended with {ended.code}: {ended.last_words}"
        )
