"""The log of a server process, on its stderr: lines that can't fail, grow or give anything away.

Python's own handlers open source files for a traceback, and those of the SDK import modules on the
way: without a free descriptor they raise, in the loop that would have recovered.
"""

from __future__ import annotations

import logging
import os
import re
import time
from types import TracebackType

from trainer_runtime.core.protocol.figures import in_utc
from trainer_runtime.core.protocol.text import cleaned

_STDERR = 2
_LONGEST_LINE = 1000
_MOST_FRAMES = 12
# What others cause by requests, as many as they like.
_LINES_A_MINUTE = 120
# Ids of sessions and approvals, digests, and access tokens: who has one may use it.
_SECRET = re.compile(r"\b[0-9a-fA-F]{32,}\b|\btmk_[\w-]+|(?i:\bbearer\s+\S+)")


def log_to_stderr() -> None:
    """Have everything that this process logs written by `ServerLog`, from warnings on."""
    logging.raiseExceptions = False
    root = logging.getLogger()
    root.handlers[:] = [ServerLog()]
    root.setLevel(logging.WARNING)


class ServerLog(logging.Handler):
    """A line each: time, level, logger, message; of an exception also its kind and its frames."""

    def __init__(self, descriptor: int = _STDERR) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._minute_began_s = time.monotonic()
        self._lines = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write it; whatever fails about that is left out."""
        try:
            if self._is_due():
                os.write(self._descriptor, _line(record).encode(errors="replace"))
        except Exception:  # stderr is closed or full, or the message can't be made
            pass

    def _is_due(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._minute_began_s >= 60:
            left_out = self._lines - _LINES_A_MINUTE
            self._minute_began_s, self._lines = now_s, 0
            if left_out > 0:
                os.write(self._descriptor, b"%d lines more were left out.\n" % left_out)
        self._lines += 1
        return self._lines <= _LINES_A_MINUTE


def _line(record: logging.LogRecord) -> str:
    began = in_utc(record.created)
    text = f"{record.levelname} {record.name}: {record.getMessage()}"
    if record.exc_info and record.exc_info[1] is not None:
        text += f" | {_raised(record.exc_info[1], record.exc_info[2])}"
    return f"{began} {cleaned(_SECRET.sub('…', text), _LONGEST_LINE)}\n"


def _raised(error: BaseException, trace: TracebackType | None) -> str:
    """The kind and text of an exception, and where it was raised: names and numbers alone."""
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return f"{type(error).__name__}: {error} at {' < '.join(frames[: -_MOST_FRAMES - 1 : -1])}"
