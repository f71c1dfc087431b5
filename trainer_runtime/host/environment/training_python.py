"""Runs work in the training's interpreter that needs its packages: tokenizers, datasets, hub.

The runtime needs nothing but the standard library; whatever takes more runs as a process
of the environment that the preparation settled.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.host.containers.container import Container
from trainer_runtime.host.processes.commands import follow

Report = Callable[[str], None]

_LABEL = "data"
_QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "PYTHONUNBUFFERED": "1",
}


class InputUnusableError(Exception):
    """What the config names can't be trained from; a retry would end the same way."""


class InputUnavailableError(Exception):
    """What the config names can't be had just now."""


@dataclass(frozen=True, slots=True)
class TrainingPython:
    """`variables`: what its processes see. `container`: where it is, if not on the host itself."""

    python: str
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    container: Container | None = None

    def command(
        self, words: Sequence[str], more: Mapping[str, str]
    ) -> tuple[list[str], Mapping[str, str]]:
        """The command line and the environment that run the interpreter with `words`, and with
        `more` variables unless it has its own of that name."""
        if self.container is None:
            return [self.python, *words], {**more, **self.variables}
        return self.container.command([self.python, *words], more), os.environ

    def run(
        self,
        module: str,
        request: Mapping[str, object],
        report: Report,
        *,
        package: str = "data",
    ) -> None:
        """Carry out a request by `python -m trainer_runtime.train.<package>.<module>`.

        Its lines are reported as steps of the data's preparation.

        Raises:
            InputUnusableError: the module says that it can't be.
            InputUnavailableError: it ended otherwise than well.
        """
        # A container sees the run's folder, and not the host's folder for temporary files.
        place = None if self.container is None else Path.cwd()
        with tempfile.TemporaryDirectory(prefix=".trainmaster-", dir=place) as folder:
            file = Path(folder, "request.json")
            file.write_text(json.dumps(request))
            words = ["-m", f"trainer_runtime.train.{package}.{module}", str(file)]
            command, environment = self.command(words, _QUIET)
            ended = follow(
                command, report, label=_LABEL, folder=Path.cwd(), environment=environment
            )
        if ended.code == ExitCode.UNUSABLE:
            raise InputUnusableError(ended.last_words)
        if ended.code != 0:
            raise InputUnavailableError(f"{module} ended with {ended.code}: {ended.last_words}")
