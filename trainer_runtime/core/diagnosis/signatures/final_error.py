"""The error at the end of a log, where no signature matches one.

An error that was caught and printed does not count: progress follows it, or a line reports that the
program continued.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from trainer_runtime.core.diagnosis.line_prefix import BlockPrefix
from trainer_runtime.core.diagnosis.signatures.log_blocks import ANSI
from trainer_runtime.core.diagnosis.signatures.shapes import is_progress_bar, is_progress_line
from trainer_runtime.core.diagnosis.signatures.signature import SETTLES_AFTER
from trainer_runtime.core.diagnosis.traceback_text import BETWEEN

_MAX_LINES = 200
_LONGEST = 2_000
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\s*$")
_FRAME = re.compile(r"^\s+File \"[^\"]+\", line \d+")
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(?:: .*|:?\s*)$")
# Printed without its traceback: by loggers, and by programs that catch it and end.
_ALONE = re.compile(
    r"^(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Timeout|Conflict|Invalid"
    r"|OutOfResources|Exhausted)(?:\(\w+\))?(?:: \S.*|\s*)$"
)
# Python's messages about errors that don't end the program.
_HARMLESS = re.compile(r'^Exception ignored in|^--- Logging error ---|^Exception in thread (?!")')
_LAUNCHER = re.compile(
    r"(?:ChildFailedError|CalledProcessError|ProcessRaisedException|ProcessExitedException)\b"
)
# It says that other processes are gone or that this one has to end, not why.
_OF_ANOTHER = re.compile(
    rb"Dist\w*Error|NCCL|nccl|[Gg]loo|ProcessGroup|c10d|SignalException|KeyboardInterrupt"
    rb"|SystemExit|RayActorError|ActorDied|WorkerCrashed|Connection (?:reset|closed)|EOFError"
)
_NATIVE = re.compile(
    r"^(?:\S+: line \d+:\s+\d+ )?(?:Segmentation fault|Aborted|Floating point exception"
    r"|Illegal instruction|Trace/breakpoint trap)(?:\s+\(core dumped\).*|\s*$)"
    r"|^Fatal Python error: |^terminate called (?:after throwing|without an active)"
    r"|^\*\*\* SIG[A-Z]{3,5} \(?@|died with <Signals\.SIG\w+: \d+>"
    r"|^libc\+\+abi: terminating |^(?:zsh|bash): (?:abort|segmentation fault|bus error)\b"
    # Go, Rust, Julia, R, the JVM, glog, make.
    r"|^panic: |^thread '[^']*' panicked at |^(?:ERROR: )?LoadError: |^Execution halted\s*$"
    r'|^Exception in thread "|^Check failed: |^make(?:\[\d+\])?: \*\*\* (?!.*ignored).*\bError \d'
)
_FATAL = re.compile(
    rb"[\d:.,TZ/ \[\]-]{0,40}(?:FATAL|PANIC)\b[\]: ]"
)  # before its prefix is removed
_EXITED = re.compile(
    r"\bfailed \(exitcode: -?[1-9]\d*\)|^\s*exitcode\s*: -?[1-9]\d*\b"
    r"|^srun: error: \S+: tasks? [\d,-]+: Exited with exit code [1-9]"
)
_NUMBER = re.compile(rb"(?:^|[\s=:(\[|/'])[-+]?\d")
_CONTINUED = re.compile(
    r"(?i)\b(?:complet(?!e stack trace)\w+|(?<!before )finish(?:ed|ing)|done|sav(?:ed|ing)|resum\w+"
    r"|success\w*|continu\w+|retry\w*|trying|skipp\w+|recover\w+|ignor\w+|fall(?:ing)? ?back)\b"
)


class _Detail(IntEnum):
    """What reported an error, by how much it says about the cause."""

    LAUNCHER = 1
    PROCESS = 2
    ALONE = 3
    EXCEPTION = 4


@dataclass(frozen=True, slots=True)
class FinalError:
    """The lines of the error: for an exception its last frame and its message. `start` is the byte
    of the tail where the last of them begins."""

    lines: tuple[bytes, ...]
    start: int
    detail: _Detail


def final_error(tail: bytes) -> FinalError | None:
    """The error that ended the training, from the last bytes of its log; None without one."""
    return _read(tail).found


def own_exceptions(tail: bytes) -> list[FinalError]:
    """The exceptions of the program at the log's end, in order, of a chain the outermost; without
    those that only say that another process is gone."""
    return [error for error in _read(tail).raised if not _OF_ANOTHER.search(error.lines[-1])]


def _read(tail: bytes) -> _TailReader:
    reader = _TailReader()
    lines = tail.replace(b"\r", b"\n").split(b"\n")
    start = sum(len(line) + 1 for line in lines[:-_MAX_LINES])
    for raw in lines[-_MAX_LINES:]:
        if raw.strip():
            reader.line(ANSI.sub(b"", raw), start)
        start += len(raw) + 1
    return reader


class _TailReader:
    """Reads line by line: `found` is the error that nothing has followed so far, `raised` are the
    exceptions of the program since it last made progress."""

    def __init__(self) -> None:
        self.found: FinalError | None = None
        self.raised: list[FinalError] = []
        self._is_chained = False
        self._frame: bytes | None = None
        self._in_traceback = self._harmless = self._in_message = False
        self._prefix = BlockPrefix()
        self._bars = 0

    def line(self, raw: bytes, start: int) -> None:
        text = self._prefix.removed(raw[:_LONGEST].decode("utf-8", errors="replace"))
        if _HARMLESS.search(text):
            self._harmless = True
        elif _TRACEBACK.match(text):
            self._in_traceback, self._frame = True, None
        elif self._in_message and _FRAME.match(text):  # an error of another process, as Ray shows
            self._in_traceback, self._frame = True, raw
        elif self._in_traceback and text[:1].isspace():
            self._frame = raw if _FRAME.match(text) else self._frame
        elif self._in_traceback and self._frame is not None and _RAISED.match(text):
            self._exception(raw, start, text)
        elif _ALONE.match(text) and not self._harmless and not _CONTINUED.search(text):
            detail = _Detail.LAUNCHER if _LAUNCHER.search(text) else _Detail.ALONE
            self._keep(FinalError((raw,), start, detail))
        elif _NATIVE.search(text) or (_FATAL.match(raw) and not _CONTINUED.search(text)):
            self._keep(FinalError((raw,), start, _Detail.PROCESS))
        elif _EXITED.search(text):
            self._keep(FinalError((raw,), start, _Detail.LAUNCHER))
        else:
            self._other(raw, text)

    def _exception(self, raw: bytes, start: int, text: str) -> None:
        detail = _Detail.LAUNCHER if _LAUNCHER.search(text) else _Detail.EXCEPTION
        if not self._harmless and self._frame is not None:
            error = FinalError((self._frame, raw), start, detail)
            self._keep(error)
            if detail is _Detail.EXCEPTION:
                self.raised[len(self.raised) - self._is_chained :] = [error]
        self._in_traceback = self._harmless = self._is_chained = False
        self._in_message = True

    def _keep(self, error: FinalError) -> None:
        if self.found is None or error.detail >= self.found.detail:
            self.found = error
        self._bars = 0

    def _other(self, raw: bytes, text: str) -> None:
        """A line that may show that the program continued. A closing bar is drawn once more, so
        several bars are needed."""
        self._in_message = self._in_message and text[:1].isspace()
        self._is_chained = bool(self.raised and (self._is_chained or BETWEEN.search(text)))
        bar = is_progress_bar(raw)
        self._bars += bar
        progress = not bar and is_progress_line(raw) and _NUMBER.search(raw)
        said = not bar and not self._in_message and _CONTINUED.search(text)
        if progress or self._bars >= SETTLES_AFTER or said:
            self.found, self._bars = None, 0
            self.raised.clear()
