"""Stacks of a process that does not answer by itself, read from outside by py-spy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_WITHIN_S = 8.0


def find_py_spy(pid: int) -> str | None:
    """The py-spy of this machine: on the path, beside our interpreter, or beside the process's."""
    beside = [os.path.dirname(sys.executable)]
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    except (OSError, UnicodeDecodeError):
        command = ""
    if command.startswith("/"):
        beside.append(os.path.dirname(command))
    return shutil.which("py-spy") or shutil.which("py-spy", path=os.pathsep.join(beside))


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
