"""Starts the host's own timer without importing any of the timer itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from trainer_runtime.core.files.durable import is_locked
from trainer_runtime.host.lease.deadlines import read_lease

LOG = "lease.log"
LOCK = ".lease.lock"


def start_timer(root: Path) -> bool:
    """Make sure that a timer runs, in a session of its own, where there is a lease; True if it had
    to be started. Doesn't wait for it."""
    if read_lease(root) is None or is_locked(root / LOCK):
        return False
    with (root / LOG).open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "trainer_runtime", "lease", str(root)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return True
