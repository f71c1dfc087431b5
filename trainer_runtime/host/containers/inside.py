"""The inner side of a container.

`python -m trainer_runtime.host.containers.inside CONFIG LOG WORDS…`

Becomes the command that it is given, in the image's own interpreter where that is `python`, with
the variables that a process of the host would have been given. Those with secrets are read here,
so that neither the engine's command line nor its records hold any. With a LOG other than `-` it is
the trainer that is started: its output goes straight there, whatever becomes of the engine, and it
holds its share of the run's trainer lock as long as it lives.
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path
from typing import NoReturn

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.decoding import DecodingError
from trainer_runtime.core.files.private import restore_umask
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.files.resolved_environment import OPENMP
from trainer_runtime.host.files.secret_file import SecretsMissingError, secret_environment

_NO_OUTPUT = "-"
_NOT_STARTED = 127


def main(config_path: str, log: str, *words: str) -> NoReturn:
    """Become `words`, in the run's folder, which is the working folder.

    Raises:
        SystemExit: it can't be started; the output says why.
    """
    run = RunFolder(Path.cwd())
    is_trainer = log != _NO_OUTPUT
    if is_trainer:
        _write_to(log)
    try:
        config = RunConfig.parse(Path(config_path).read_bytes(), config_path)
        variables = {**config.env, **secret_environment(run, config)}
        if is_trainer:
            _share_lock(run)
        restore_umask()
        for name, value in {**OPENMP, "PYTHONUNBUFFERED": "1"}.items():
            os.environ.setdefault(name, value)
        os.environ.update(variables)
        os.execvp(words[0], words)
    except (SecretsMissingError, DecodingError) as error:
        print(error, file=sys.stderr, flush=True)
        sys.exit(ExitCode.UNUSABLE)
    except OSError as error:
        print(f"{words[0]} could not be started: {error}", file=sys.stderr, flush=True)
        sys.exit(_NOT_STARTED)


def _write_to(log: str) -> None:
    opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor in (1, 2):
        os.dup2(opened, descriptor)
    os.close(opened)


def _share_lock(run: RunFolder) -> None:
    """Hold the run's trainer lock beside hold, who has just made it one to be shared."""
    lock = os.open(run.trainer_lock, os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.set_inheritable(lock, True)


if __name__ == "__main__":
    main(*sys.argv[1:])
