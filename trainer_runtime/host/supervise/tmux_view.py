"""A window on the running log, in tmux or screen. Its absence changes nothing."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

_TIMEOUT_S = 5.0


def open_window(run_id: str, log: Path) -> str | None:
    """Show `log` in a session named `tm-<run>`; the command that attaches to it, None if none can.

    In tmux's names a dot stands between window and pane, so that a run's dots become `_`.
    The log's link moves to the next attempt's file, hence `-F` with an early check of the name.
    """
    session = _session(run_id)
    follow = ["tail", "-n", "200", "-F", "--max-unchanged-stats=1", str(log)]
    if shutil.which("tmux"):
        if _succeeds(["tmux", "has-session", "-t", f"={session}"]):
            return f"tmux attach -t {session}"
        if _succeeds(["tmux", "new-session", "-d", "-s", session, shlex.join(follow)]):
            return f"tmux attach -t {session}"
    if shutil.which("screen") and _succeeds(["screen", "-dmS", session, *follow]):
        return f"screen -r {session}"
    return None


def close_window(run_id: str) -> None:
    """End the session, whichever of the two holds it; nothing happens where there is none."""
    session = _session(run_id)
    if shutil.which("tmux"):
        _succeeds(["tmux", "kill-session", "-t", f"={session}"])
    if shutil.which("screen"):
        _succeeds(["screen", "-S", session, "-X", "quit"])


def _session(run_id: str) -> str:
    return f"tm-{run_id}".replace(".", "_")


def _succeeds(command: list[str]) -> bool:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
