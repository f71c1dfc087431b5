"""Asks programs that answer soon."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


def answer_of(
    command: Sequence[str], *, within_s: float, own_session: bool = False
) -> subprocess.CompletedProcess[bytes] | None:
    """How a program ended, with what it printed; None where it can't be started, or took longer.

    `own_session`: a terminal's signals don't reach it.
    """
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=within_s,
            check=False,
            start_new_session=own_session,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
