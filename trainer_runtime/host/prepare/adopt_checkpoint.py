"""Adopts a foreign training's checkpoint as the one that a run begins with."""

from __future__ import annotations

from pathlib import Path

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.files.manifest import MANIFEST_NAME
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.host.environment.training_python import TrainingPython
from trainer_runtime.host.processes.commands import Report, follow

_LABEL = "adopt"
_TAKES_OVER = "trainer_runtime.train.foreign.take_over"


class NotAdoptedError(Exception):
    """The checkpoint can't be taken over; a retry would end the same way."""


class NotAdoptedYetError(Exception):
    """Something stood in the way that may be gone later, such as a full disk."""


def take_over(
    config: RunConfig, path: Path, run: Path, python: TrainingPython, report: Report
) -> None:
    """Bring the checkpoint that the config's `adopt` names among the run's, unless it is there.

    `path`: the config's. It is read and written by `python`, the interpreter that is to train.

    Raises:
        NotAdoptedError: it is not what it was when the run was made, or can't be read.
        NotAdoptedYetError: it could not be brought just now.
    """
    if not _is_due(config, run):
        return
    command, environment = python.command(["-m", _TAKES_OVER, str(path)], {})
    ended = follow(command, report, label=_LABEL, folder=run, environment=environment)
    if ended.code == ExitCode.UNUSABLE:
        raise NotAdoptedError(ended.last_words)
    if ended.code != 0:
        raise NotAdoptedYetError(f"the checkpoint was not taken over: {ended.last_words}")


def _is_due(config: RunConfig, run: Path) -> bool:
    adopted, attempt = config.adopt, config.attempt
    if adopted is None:
        return False
    if not attempt.has_resume:  # by hand: from the newest checkpoint there is
        return not any((run / "checkpoints").glob("step-*"))
    step = adopted.step
    if step not in (attempt.resume.candidates or ()):
        return False
    is_there = (run / f"checkpoints/step-{step:08d}" / MANIFEST_NAME).exists()
    return not (is_there and any((run / "attempts").glob("*/events.jsonl")))
