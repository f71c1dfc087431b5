"""Stacks of a process that does not answer by itself, read from outside by py-spy."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

_WITHIN_S = 8.0


def find_py_spy(pid: int) -> str | None:
    """The py-spy of this machine: on the path, beside our interpreter, or beside the process's.

    Where a process says that its interpreter lies is its own word: what stands there is only run
    where it belongs to this user or to root.
    """
    ours = shutil.which("py-spy") or shutil.which("py-spy", path=os.path.dirname(sys.executable))
    if ours is not None:
        return ours
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    except (OSError, UnicodeDecodeError):
        command = ""
    if not command.startswith("/"):
        return None
    theirs = shutil.which("py-spy", path=os.path.dirname(command))
    return theirs if theirs is not None and _is_safe(theirs) else None


def spy(program: str, pid: int) -> str:
    """The process's stacks as JSON, without pausing it; empty where they can't be had."""
    command = [program, "dump", "--json", "--nonblocking", "--pid", str(pid)]
    for _ in range(2):  # a process that runs on may change under its reader
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_WITHIN_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        if done.returncode == 0:
            return done.stdout.decode(errors="replace")
    return ""


def _is_safe(program: str) -> bool:
    """Whether only this user or root could have put it there."""
    try:
        statuses = (os.stat(program), os.stat(os.path.dirname(program)))
    except OSError:
        return False
    return all(
        status.st_uid in (0, os.geteuid()) and not status.st_mode & stat.S_IWOTH
        for status in statuses
    )
