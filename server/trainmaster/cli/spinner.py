"""A word on the terminal while a command takes long: stderr alone, and gone when it ends."""

from __future__ import annotations

import os
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from trainer_runtime.core.protocol.figures import spoken_duration

FIRST_WORD_S = 1.0
# Held while the spinner writes, and while a question is asked.
_TERMINAL = threading.Lock()
_EVERY_S = 0.5
_LONGEST_WORD = 40
_SIGNS = "|/-\\"


@contextmanager
def spinner(stream: TextIO | None = None) -> Iterator[None]:
    """Inside, a terminal shows after a second that the command is working.

    By a thread, since the work may block the event loop.
    """
    stream = stream or sys.stderr
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_spin, args=(stream, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def kept_quiet(stream: TextIO | None = None) -> Iterator[None]:
    """Inside, the line is free for a question and its answer."""
    stream = stream or sys.stderr
    with _TERMINAL:
        if stream.isatty() and os.environ.get("TERM") != "dumb":
            stream.write(f"\r{'':<{_LONGEST_WORD}}\r")
            stream.flush()
        yield


def _is_being_asked(stream: TextIO) -> bool:
    """Whether a passphrase is being typed there: only then does a terminal show no input."""
    try:
        return not termios.tcgetattr(stream.fileno())[3] & termios.ECHO
    except (OSError, termios.error):
        return False


def _spin(stream: TextIO, over: threading.Event) -> None:
    began_s = time.monotonic()
    pause_s, count, width = FIRST_WORD_S, 0, 0
    while not over.wait(pause_s):
        if _is_being_asked(stream):
            continue
        text = (
            f"{_SIGNS[count % len(_SIGNS)]} working, {spoken_duration(time.monotonic() - began_s)}"
        )
        with _TERMINAL:
            stream.write(f"\r{text:<{width}}")
            stream.flush()
        pause_s, count, width = _EVERY_S, count + 1, max(width, len(text))
    if width:
        stream.write(f"\r{'':<{width}}\r")
        stream.flush()
