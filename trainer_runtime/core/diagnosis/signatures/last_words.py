"""The error that a log ends with, where no signature names one.

An error that was caught and printed is none of these: training goes on after it, or a line says
that the program did.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from trainer_runtime.core.diagnosis.signatures.scan import ANSI
from trainer_runtime.core.diagnosis.signatures.shapes import is_bar, tells_progress
from trainer_runtime.core.diagnosis.signatures.signature import SETTLES_AFTER

_MOST_LINES = 200
_LONGEST = 2_000
_PREFIX = re.compile(r"^\[?(?:rank|default)?\d{1,6}\]?: ?")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\s*$")
_FRAME = re.compile(r"^\s+File \"[^\"]+\", line \d+")
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(?:: .*|:?\s*)$")
# What Python prints of errors that end nothing.
_HARMLESS = re.compile(r"^Exception ignored in|^--- Logging error ---|^Exception in thread ")
_LAUNCHER = re.compile(
    r"(?:ChildFailedError|CalledProcessError|ProcessRaisedException|ProcessExitedException)\b"
)
_NATIVE = re.compile(
    r"^(?:\S+: line \d+:\s+\d+ )?(?:Segmentation fault|Aborted|Floating point exception"
    r"|Illegal instruction|Trace/breakpoint trap)(?:\s+\(core dumped\).*|\s*$)"
    r"|^Fatal Python error: |^terminate called (?:after throwing|without an active)"
    r"|^\*\*\* SIG[A-Z]{3,5} \(?@|died with <Signals\.SIG\w+: \d+>"
)
_EXITED = re.compile(r"\bfailed \(exitcode: -?[1-9]\d*\)|^\s*exitcode\s*: -?[1-9]\d*\b")
_WENT_ON = re.compile(
    r"(?i)\b(?:complet\w+|finish(?:ed|ing)|done|sav(?:ed|ing)|resum\w+|success\w*|continu\w+"
    r"|retry\w*|trying|skipp\w+|recover\w+|ignor\w+|fall(?:ing)? ?back)\b"
)


class _Says(IntEnum):
    """How much a kind of last words tells of the cause."""

    LAUNCHER = 1
    PROCESS = 2
    EXCEPTION = 3


@dataclass(frozen=True, slots=True)
class LastWords:
    """The lines that tell of it, the frame before the exception, and where the last one stands."""

    lines: tuple[bytes, ...]
    place: int
    says: _Says


def last_words(tail: bytes) -> LastWords | None:
    """What ended the training, as its log's last bytes tell it; None where nothing does."""
    reading = _Reading()
    lines = tail.replace(b"\r", b"\n").split(b"\n")
    place = sum(len(line) + 1 for line in lines[:-_MOST_LINES])
    for raw in lines[-_MOST_LINES:]:
        if raw.strip():
            reading.line(ANSI.sub(b"", raw), place)
        place += len(raw) + 1
    return reading.found


class _Reading:
    """Line by line: `found` is what stands so far and has not been outlived."""

    def __init__(self) -> None:
        self.found: LastWords | None = None
        self._frame: bytes | None = None
        self._in_traceback = self._harmless = False
        self._bars = 0

    def line(self, raw: bytes, place: int) -> None:
        text = _PREFIX.sub("", raw[:_LONGEST].decode("utf-8", errors="replace"))
        if _HARMLESS.search(text):
            self._harmless = True
        elif _TRACEBACK.match(text):
            self._in_traceback, self._frame = True, None
        elif self._in_traceback and text[:1].isspace():
            self._frame = raw if _FRAME.match(text) else self._frame
        elif self._in_traceback and self._frame is not None and _RAISED.match(text):
            self._raised(raw, place, text)
        elif _NATIVE.search(text):
            self._tell(LastWords((raw,), place, _Says.PROCESS))
        elif _EXITED.search(text):
            self._tell(LastWords((raw,), place, _Says.LAUNCHER))
        else:
            self._other(raw, text)

    def _raised(self, raw: bytes, place: int, text: str) -> None:
        says = _Says.LAUNCHER if _LAUNCHER.search(text) else _Says.EXCEPTION
        if not self._harmless and self._frame is not None:
            self._tell(LastWords((self._frame, raw), place, says))
        self._in_traceback = self._harmless = False

    def _tell(self, words: LastWords) -> None:
        if self.found is None or words.says >= self.found.says:
            self.found = words
        self._bars = 0

    def _other(self, raw: bytes, text: str) -> None:
        """Training, or what a program says that goes on; a bar is drawn again when it is closed."""
        bar = is_bar(raw)
        self._bars += bar
        progress = not bar and tells_progress(raw)
        if progress or self._bars >= SETTLES_AFTER or (not bar and _WENT_ON.search(text)):
            self.found, self._bars = None, 0
