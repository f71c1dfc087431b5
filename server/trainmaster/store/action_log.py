"""`log/trainmaster.jsonl` in the home: every call that acted, one JSON line each.

Of calls over HTTP those that only read are logged too.

A line names the face and its client, the action, what it acted on, and the outcome. Only names go
in (runs, hosts, paths, ids): never a spec's text, a value of `--set`, an address or a secret.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from trainer_runtime.core.files.regular import open_regular
from trainer_runtime.core.protocol.figures import in_utc
from trainmaster.calls.work import spend
from trainmaster.errors.errors import TrainmasterError
from trainmaster.home.paths import Home

Face = Literal["cli", "mcp", "keeper"]

ROTATE_AT_BYTES = 4 * 1024 * 1024
KEPT_FILES = 5  # the current one and four older ones: 20 MiB
# Of each file: more than ours ever hold.
_MOST_READ_BYTES = 2 * ROTATE_AT_BYTES
_BLOCK_BYTES = 1 << 16
_LONGEST_LINE_BYTES = 1 << 16
# Arguments that name something; all others stay out of the log.
TARGETS = ("run", "run_id", "host", "name", "instance", "offer", "approval", "folder")
# A spec is logged where it is a path; its text would carry values.
SPEC = "spec"
_OF_AN_ANSWER = ("run_id", "host", "state", "note")
_LONGEST_VALUE = 200
_NAME = re.compile(r"[\w@%+=:,./~ -]+")


@dataclass(frozen=True, slots=True)
class LoggedAction:
    """One call. `time`: UTC, when it began. `outcome`: `ok`, `asked` where the call ended with a
    question, or an error's code. `user`: the name of the access token, empty but over HTTP."""

    time: str
    face: Face
    client: str
    action: str
    outcome: str
    duration_s: float
    target: Mapping[str, str] = field(default_factory=dict)
    user: str = ""


class _Current:
    """The call under way, so that its answer can name the run that it made."""

    def __init__(self, target: Mapping[str, str]) -> None:
        self.target = dict(target)
        self.acted = True
        self.outcome: str | None = None

    def answered(self, answer: object) -> None:
        for name in _OF_AN_ANSWER:
            value = answer.get(name) if isinstance(answer, Mapping) else getattr(answer, name, None)
            if isinstance(value, str):
                self.target |= _plain_name(name, value)


_current: ContextVar[_Current | None] = ContextVar("current_action", default=None)


def record_answer(answer: object) -> None:
    """Complete the line of the action under way by what its answer names; nothing without one."""
    current = _current.get()
    if current is not None:
        current.answered(answer)


def record_outcome(outcome: str) -> None:
    """Name the outcome of the action under way, where its error's code wouldn't."""
    current = _current.get()
    if current is not None:
        current.outcome = outcome


def is_acting() -> bool:
    """Whether a logged action is under way."""
    return _current.get() is not None


def discard_action() -> None:
    """The call under way turned out to act on nothing: it gets no line."""
    current = _current.get()
    if current is not None:
        current.acted = False


@contextmanager
def logged_action(
    home: Home,
    face: Face,
    client: str,
    action: str,
    arguments: Mapping[str, object],
    *,
    user: str = "",
) -> Iterator[None]:
    """Log what happens inside as one line, whatever the outcome; a full disk stops no action.

    `arguments`: the call's own; of them only what `TARGETS` names is kept.
    """
    began_s, clock_s = time.time(), time.monotonic()
    current = _Current(targets_of(arguments))
    token = _current.set(current)
    outcome = "INTERRUPTED"
    try:
        yield
        outcome = "ok"
    except Exception as error:
        outcome = _code_of(error)
        raise
    finally:
        with suppress(ValueError):  # ended in another context than it began in
            _current.reset(token)
        if current.acted:
            line = LoggedAction(
                time=in_utc(began_s),
                face=face,
                client=client[:_LONGEST_VALUE],
                action=action,
                outcome=current.outcome or outcome,
                duration_s=round(time.monotonic() - clock_s, 3),
                target=current.target,
                user=user,
            )
            with suppress(OSError):
                append(home, line)


def targets_of(arguments: Mapping[str, object]) -> dict[str, str]:
    """The arguments that name what is acted on, by name."""
    targets: dict[str, str] = {}
    for name in TARGETS:
        value = arguments.get(name)
        if isinstance(value, str) and value:
            targets |= _plain_name("run_id" if name == "run" else name, value)
    spec = arguments.get(SPEC)
    if isinstance(spec, str) and "\n" not in spec:
        targets |= _plain_name(SPEC, spec)
    return targets


def append(home: Home, action: LoggedAction) -> None:
    """Append one line and rotate a file that has grown too large, safe against other processes.

    Raises:
        OSError: the home can't be written.
    """
    path = home.action_log
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists() and path.stat().st_size >= ROTATE_AT_BYTES:
            _rotate(path)
        fields = {name: value for name, value in asdict(action).items() if name != "user" or value}
        data = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, data + b"\n")
        finally:
            os.close(file)
    finally:
        os.close(lock)


def read_actions(home: Home, limit: int, run_id: str | None = None) -> list[LoggedAction]:
    """The newest `limit` lines, oldest first; with `run_id`, that run's. Skips damaged lines."""
    actions: list[LoggedAction] = []
    for path in _files(home.action_log):
        with suppress(OSError):
            for line in _newest_lines(path):
                action = _parse(line)
                if action is None or run_id not in (None, action.target.get("run_id")):
                    continue
                actions.append(action)
                if len(actions) == limit:
                    return actions[::-1]
    return actions[::-1]


def _newest_lines(path: Path) -> Iterator[bytes]:
    """The lines of a regular file from its last one on; of one that is too long no others than
    its end holds.

    Raises:
        OSError: it is missing, or is none.
    """
    with open_regular(path) as file:
        end = os.fstat(file.fileno()).st_size
        first, begun = max(0, end - _MOST_READ_BYTES), b""
        while end > first:
            size = min(_BLOCK_BYTES, end - first)
            end -= size
            spend(size)
            head, *lines = (os.pread(file.fileno(), size, end) + begun).split(b"\n")
            yield from filter(None, reversed(lines))
            begun = head[:_LONGEST_LINE_BYTES]
        if end == 0:
            yield begun


def _parse(line: bytes) -> LoggedAction | None:
    try:
        value = json.loads(line.decode(errors="replace"))
        target = {str(name): str(text) for name, text in dict(value.pop("target")).items()}
        return LoggedAction(**value, target=target)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _files(path: Path) -> Iterator[Path]:
    """The current file, then the older ones, newest first."""
    yield path
    for number in range(1, KEPT_FILES):
        yield path.with_suffix(f".{number}.jsonl")


def _rotate(path: Path) -> None:
    files = list(_files(path))
    for newer, older in zip(files[-2::-1], files[:0:-1], strict=True):
        if newer.exists():
            os.replace(newer, older)


def _code_of(error: BaseException) -> str:
    """The code of the error that a face may have wrapped."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TrainmasterError):
            return cause.code
        if isinstance(cause, TimeoutError):
            return "TIMEOUT"
        cause = cause.__cause__
    return "INTERNAL"


def _plain_name(name: str, value: str) -> dict[str, str]:
    """Free text is left out: it may carry what nobody meant to be logged."""
    text = value[:_LONGEST_VALUE]
    return {name: text} if _NAME.fullmatch(text) else {}
