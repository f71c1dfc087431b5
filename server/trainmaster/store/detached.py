"""Processes of our own that outlive whoever starts them, one at a time by a lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from trainer_runtime.core.files.durable import try_lock
from trainmaster.words.paths import HOME_VARIABLE, Home

# Never a module that lies in the folder where somebody calls us.
SAFELY = ("-P",)


def begin_locked(home: Home, lock: Path, *words: str) -> bool:
    """Start `trainmaster WORDS...` in a session of its own where nobody holds the lock; True if so.

    It inherits the lock as `--lock-descriptor`, so that nobody can come between, and writes into
    a log beside it.
    """
    descriptor = try_lock(lock)
    if descriptor is None:
        return False
    try:
        inherited = ("--lock-descriptor", str(descriptor))
        with lock.with_suffix(".log").open("ab") as output:
            subprocess.Popen(
                [sys.executable, *SAFELY, "-m", "trainmaster", *words, *inherited],
                env={**os.environ, HOME_VARIABLE: str(home.root)},
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
    finally:
        os.close(descriptor)
    return True
