"""The ways in which an attempt ends, as exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable

from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.attempt.nan_guard import NonFiniteError


class ShardsError(Exception):
    """The prepared shards are missing, damaged, or do not fit the configuration."""


class StopRequestedError(Exception):
    """The training was asked to end, and its state is saved."""


class PhaseMissedError(Exception):
    """A phase has not reached its success; its state is saved, and the supervisor acts."""


class NotSavedError(Exception):
    """The state that an end of the training depends on could not be saved."""


def ending(attempt: Callable[[], None]) -> int:
    """Runs an attempt; the process's exit code.

    0 complete, 75 saved on a signal, 76 ended by the guard, 77 unusable configuration or data, 78 a
    phase was missed; 1 if the end of the training can't be saved.
    """
    try:
        attempt()
    except StopRequestedError as stopped:
        print(stopped, flush=True)
        return ExitCode.SAVED_ON_SIGTERM
    except PhaseMissedError as missed:
        print(missed, flush=True)
        return ExitCode.PHASE_MISSED
    except NonFiniteError as error:
        return _print_error(f"guard: {error}", ExitCode.GUARD)
    except (ConfigError, ShardsError) as error:
        return _print_error(f"unusable: {error}", ExitCode.UNUSABLE)
    except NotSavedError as error:
        return _print_error(f"error: {error}", 1)
    return ExitCode.COMPLETE


def _print_error(line: str, code: int) -> int:
    print(line, file=sys.stderr, flush=True)
    return code
