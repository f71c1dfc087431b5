"""A failure's text without what names its owner, to be filed with those who wrote the program.

What is kept: exceptions, frames and lines of packages, versions, numbers. What is replaced:
secrets, addresses, names of users, hosts and repositories, and paths outside of packages.
"""

from __future__ import annotations

import getpass
import platform
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from trainer_runtime.core.diagnosis.line_prefix import BlockPrefix
from trainer_runtime.core.diagnosis.signatures import find_in
from trainer_runtime.core.diagnosis.signatures.log_blocks import ANSI, TAIL_BYTES
from trainer_runtime.core.diagnosis.traceback_text import BEGIN
from trainer_runtime.core.protocol.figures import share_text
from trainer_runtime.core.protocol.text import shown
from trainmaster.answers.diagnosis import FailureReport
from trainmaster.metrics.log_file import read_text
from trainmaster.store.secret_patterns import mask_patterns

_MOST_LINES = 120
_LINES_WITHOUT_TRACEBACK = 40
_LINES_BEFORE = 5
_LONGEST = 500
_PUBLIC = r"(?:[\w-]+\.)*(?:huggingface\.co|github\.com|pytorch\.org|pypi\.org|python\.org)"
_NAMES = (
    re.compile(r"(?:/home/|/Users/|[\\/]Users[\\/])([\w.-]{2,40})"),
    re.compile(r"\bhost\s*[:=]\s*([\w.-]{2,80})"),
    re.compile(r"\bsrun: error: ([\w.-]{2,60}):|\bON ([\w.-]{2,60}) CANCELLED"),
    re.compile(r"^\(?[\w ()-]{0,20}?([\w.-]{2,60})@([\w.-]{2,60}):", re.MULTILINE),
    re.compile(r"\b(?:user|USER|username)[=:]\s?([\w.-]{2,40})"),
)
_FRAME = re.compile(r'^(\s*File ")([^"]+)(", line \d+, in )')
_PACKAGE = re.compile(r"^.*?((?:site|dist)-packages/|lib/python3\.\d+/)")
_REPLACED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"[^\s'\"]*?((?:site|dist)-packages/)"), r".../\1"),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "<e-mail>"),
    (re.compile(rf"\bhttps?://(?!{_PUBLIC})[^\s'\"<>)]+"), "<url>"),
    (re.compile(rf"(https?://{_PUBLIC})/[^\s'\"<>)]+"), r"\1/<path>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b"), "<address>"),
    (re.compile(r"\b(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}\b"), "<address>"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\b[0-9a-f]{24,}\b"), "<id>"),
    (re.compile(r"(?<![\w/])(?:s3|gs|az|abfs|hdfs)://[^\s'\"<>)]+"), "<url>"),
    (re.compile(r"(['\"`])[\w.-]+(?:/[\w.-]+)+\1"), r"\1<path or repository>\1"),
    (
        re.compile(r"(?<![\w/.<])[A-Za-z][\w.-]{1,60}/[A-Za-z][\w.]*[-_\d][\w.-]*(?![\w/])"),
        "<repository>",
    ),
    (re.compile(r"(?<![\w<./])(?:~|\.{1,2})?/(?!/)[^\s'\":;,<>()\[\]]+"), "<path>"),
    (re.compile(r"\b[A-Za-z]:[\\/][^\s'\":;,<>()\[\]]+"), "<path>"),
)


def report_of(path: Path) -> FailureReport:
    """The report of the failure in which a log ends.

    Raises:
        UsageError: `LOG_NOT_READABLE`.
    """
    tail = b""
    for chunk in read_text(path):
        tail = (tail + chunk)[-TAIL_BYTES:]
    findings = find_in([tail])
    codes = [f"{finding.code} ({share_text(finding.confidence)} sure)" for finding in findings]
    return FailureReport(findings=codes, text=anonymous(tail.decode("utf-8", errors="replace")))


def anonymous(text: str) -> str:
    """The last traceback of a text, or its last lines, without what names its owner."""
    lines = [shown(line.encode(errors="replace"))[:_LONGEST] for line in _last(text)]
    names = _names(text)
    lines = mask_patterns("\n".join(lines)).split("\n")
    return "\n".join(_without_names(lines, names))


def _last(text: str) -> list[str]:
    prefix = BlockPrefix()
    plain = ANSI.sub(b"", text.encode(errors="replace")).decode()
    lines = [prefix.removed(line) for line in plain.replace("\r", "\n").split("\n") if line.strip()]
    begins = [place for place, line in enumerate(lines) if BEGIN[:-1] in line]
    if not begins:
        return lines[-_LINES_WITHOUT_TRACEBACK:]
    return lines[max(0, begins[-1] - _LINES_BEFORE) :][:_MOST_LINES]


def _names(text: str) -> re.Pattern[str]:
    """The names that the text or this machine gives away."""
    names = {name for pattern in _NAMES for match in pattern.findall(text) for name in _flat(match)}
    names |= {socket.gethostname(), platform.node(), _user()}
    words = sorted((re.escape(name) for name in names if len(name) > 2), key=len, reverse=True)
    words = [word for word in words if word not in ("root", "localhost", "ubuntu")]
    return re.compile(rf"(?<![\w-])(?:{'|'.join(words)})(?![\w-])" if words else r"(?!)")


def _flat(match: str | tuple[str, ...]) -> tuple[str, ...]:
    return (match,) if isinstance(match, str) else match


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def _without_names(lines: list[str], names: re.Pattern[str]) -> Iterator[str]:
    files: dict[str, str] = {}
    is_own = False
    for line in lines:
        frame = _FRAME.match(line)
        if frame:
            package = _PACKAGE.match(frame[2])
            is_own = package is None
            if package:
                file = f".../{package[1]}{frame[2][package.end() :]}"
            else:
                file = files.setdefault(frame[2], f"own{len(files) + 1}.py")
            yield f"{frame[1]}{file}{frame[3]}{line[frame.end() :]}"
        elif is_own and line.startswith("    "):
            continue  # a line of the user's own program
        else:
            is_own = False
            yield _replaced(line, names)


def _replaced(line: str, names: re.Pattern[str]) -> str:
    for pattern, by in _REPLACED:
        line = pattern.sub(by, line)
    return names.sub("<name>", line)
