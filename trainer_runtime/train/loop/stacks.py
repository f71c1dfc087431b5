"""Stacks on request: SIGUSR2 makes this process write where each of its threads stands.

They go into a file of the attempt's folder, one per rank, which is opened now and stays open: where
a disk hangs, opening it could hang as well. The handler is C's own, so it also answers while the
interpreter waits for a lock, a collective or a GPU. DataLoader workers that are forked inherit it.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from pathlib import Path

from trainer_runtime.core.diagnosis.stacks.names import ATTEMPT_VARIABLE, RANK_VARIABLE, stacks_name


def answer_signals() -> None:
    """Write the stacks of all threads on SIGUSR2 from now on; to stderr where no attempt is known.

    To be called before anything is loaded that may hang, with the run's folder as working folder.
    """
    file = _open_file()
    faulthandler.register(
        signal.SIGUSR2, file=sys.stderr if file is None else file, all_threads=True, chain=False
    )


def _open_file() -> int | None:
    attempt = os.environ.get(ATTEMPT_VARIABLE, "").rpartition("/")[2]
    rank = os.environ.get(RANK_VARIABLE, "0")
    if not (attempt.isdecimal() and rank.isdecimal()):
        return None
    path = Path("attempts", attempt, stacks_name(int(rank)))
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
