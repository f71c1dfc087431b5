"""Detached processes that outlive their caller, one at a time per lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from trainer_runtime.core.files.durable import try_lock
from trainmaster.home.paths import HOME_VARIABLE, Home

# Never import a module from the current folder.
SAFELY = ("-P",)


def begin_locked(home: Home, lock: Path, *words: str) -> bool:
    """Start `trainmaster WORDS...` in a new session; False where another process holds the lock.

    The process inherits the lock as `--lock-descriptor`, so that no other one can take it in
    between, and writes to a log beside it.
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
