"""A process that answers within a bound of its own, in which loading PyTorch counts."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable

from trainer_runtime.core.decoding import JsonRecord
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.train.attempt.config import ConfigError

_NICE = 5


def yield_to_training() -> None:
    """From here on, the CPUs are first for a training that runs beside this process."""
    os.nice(_NICE)


def answer_within(within_s: float, answer: Callable[[float], JsonRecord]) -> int:
    """Print what `answer` returns as the last line; the exit code.

    `answer` is given the end of its time, of the monotonic clock; past it the process is ended. It
    calls `yield_to_training` before what takes long: loading PyTorch beside a busy host would else
    take the whole time.
    """
    until_s = time.monotonic() + within_s
    signal.alarm(math.ceil(within_s))  # ends the process, wherever it is then
    try:
        record = answer(until_s)
    except (ConfigError, OSError) as error:
        print(error, file=sys.stderr, flush=True)
        return ExitCode.UNUSABLE
    print(json.dumps(record.to_dict()), flush=True)
    return 0
