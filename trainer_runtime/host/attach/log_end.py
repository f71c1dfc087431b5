"""Reads from a log's last lines how a training ended that is known by its log alone."""

from __future__ import annotations

import re
from pathlib import Path

_READ_BYTES = 1 << 16
_LAST_LINES = 40
_TROUBLE = re.compile(
    rb"Traceback \(most recent call last\)|^(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)\b(?::|$)"
    rb"|\b(?:Segmentation fault|core dumped|Aborted)\b|^Killed\b",
    re.MULTILINE,
)


def end_in_log(log: Path, *, in_lines: bool = True) -> str:
    """How a training whose process is gone ended, as far as its log shows.

    `in_lines` is false where the last line says nothing by being unended: a shell's prompt stands
    there in a pane.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _READ_BYTES))
            data = file.read()
    except OSError:
        data = b""
    if not data.strip():
        return "its process is gone, and its log is empty"
    last = b"\n".join(data.splitlines()[-_LAST_LINES:])
    if _TROUBLE.search(last):
        return "its process is gone and the log breaks off in an error"
    if in_lines and not data.endswith((b"\n", b"\r")):
        return "its process is gone and the log breaks off in the middle of a line"
    return "its process ended; the log ends without an error"
