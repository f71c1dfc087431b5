"""The log of a run, or of any file, by cursor: sanitised, progress bars collapsed."""

from __future__ import annotations

import asyncio
import os
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import regex

from trainer_runtime.core.protocol.followed_files import JOURNAL, SETUP_LOG, TRAIN_LOG
from trainer_runtime.core.protocol.text import shown
from trainmaster.metrics.log_file import log_file, open_log
from trainmaster.runs.log_lines import LogLine, end_of_lines, lines_before, lines_from
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.runs import LogAnswer
from trainmaster.words.errors import UsageError

Stream = Literal["train", "setup", "supervisor"]
_FILES = {"train": TRAIN_LOG, "setup": SETUP_LOG}
_CURSOR = re.compile(r"l1\.(train|setup|supervisor|file)\.(\d{1,9})(?:/(\d{1,9}))?\.(\d{1,15})")
_LONGEST_PATTERN = 500
_LONGEST_SEARCH_S = 5.0


# The attempt of the file (0 where there is only one), and its generation: a new one begins when the
# file is truncated or replaced.
_Piece = tuple[int, int]
_FIRST_GENERATION = 1


@dataclass(frozen=True, slots=True)
class _Position:
    """The next position to read: byte `offset` of a piece of the log."""

    stream: str
    piece: _Piece
    offset: int

    def __str__(self) -> str:
        attempt, generation = self.piece
        named = f"{attempt}" if generation == _FIRST_GENERATION else f"{attempt}/{generation}"
        return f"l1.{self.stream}.{named}.{self.offset}"


async def read_log(
    workspace: Workspace,
    run_or_file: str,
    *,
    stream: Stream = "train",
    cursor: str | None = None,
    grep: str | None = None,
    limit: int = 100,
) -> LogAnswer:
    """The last `limit` lines, or up to `limit` lines after `cursor`; `more` if there are more now.

    Passing on each answer's cursor reads every byte once, over all attempts. `grep`: a
    regular expression that lines must contain. A last line without its end is kept for later, but
    where a later attempt has begun.

    Raises:
        StateError: `RUN_NOT_FOUND`, neither a run nor a file.
        UsageError: `BAD_ARGUMENT` for the expression, `CURSOR_INVALID`, `LOG_NOT_READABLE` for a
            file.
    """
    pattern = None if grep is None else _Pattern(grep)
    unreachable = None
    file = log_file(workspace, run_or_file)
    if file is not None:
        open_log(file).close()
        files = {(0, _FIRST_GENERATION): file}
        stream_name = "file"
    else:
        view = await refresh(workspace, run_or_file)
        files, stream_name, unreachable = _files(workspace, view, stream), stream, view.unreachable
    position = None if cursor is None else _parse(cursor, stream_name)
    answer = await asyncio.to_thread(_read, files, stream_name, position, pattern, limit)
    return answer.model_copy(update={"unreachable": unreachable})


def _read(
    files: dict[_Piece, Path],
    stream: str,
    position: _Position | None,
    pattern: _Pattern | None,
    limit: int,
) -> LogAnswer:
    if position is None:
        return _tail(files, stream, pattern, limit)
    return _onward(files, position, pattern, limit)


def _files(workspace: Workspace, view: RunView, stream: Stream) -> dict[_Piece, Path]:
    """The real paths of the stream's pieces, oldest first: each generation of each attempt's
    file."""
    mirror = workspace.mirror.of(view.run.run_id, view.run.placement)
    if stream == "supervisor":
        names = {0: JOURNAL}
    else:
        names = {n: f"attempts/{n}/{_FILES[stream]}" for n in mirror.attempts()}
    return {
        (attempt, generation): Path(os.path.realpath(mirror.path(piece)))
        for attempt, name in names.items()
        for generation, piece in enumerate(mirror.generations(name), _FIRST_GENERATION)
    }


def _tail(
    files: dict[_Piece, Path], stream: str, pattern: _Pattern | None, limit: int
) -> LogAnswer:
    """The last lines, read backwards block by block, piece by piece."""
    lines: list[str] = []
    end: _Position | None = None
    for piece in sorted(files, reverse=True):
        found, offset = _last_lines(
            files[piece], pattern, limit - len(lines), with_torn_end=end is not None
        )
        end = end or _Position(stream, piece, offset)
        lines = found + lines
        if len(lines) >= limit:
            break
    position = end or _Position(stream, (0, _FIRST_GENERATION), 0)
    return LogAnswer(lines=lines, cursor=str(position), more=False)


def _last_lines(
    path: Path, pattern: _Pattern | None, limit: int, *, with_torn_end: bool
) -> tuple[list[str], int]:
    """The last `limit` lines that match, and the offset behind the last whole line.

    `with_torn_end`: what follows the last whole line is one too.
    """
    if not path.exists():
        return [], 0
    found: list[str] = []
    with open_log(path) as file:
        end = file.seek(0, 2) if with_torn_end else end_of_lines(file)
        for line in lines_before(file, end):
            if len(found) >= limit:
                break
            found += _matching(line, pattern)
    return found[::-1], end


def _onward(
    files: dict[_Piece, Path], position: _Position, pattern: _Pattern | None, limit: int
) -> LogAnswer:
    lines: list[str] = []
    while True:
        path = files.get(position.piece)
        following = [piece for piece in sorted(files) if piece > position.piece]
        # Nothing is added to a piece that has a successor: its torn end is a line.
        got, offset = _next_lines(
            path, position.offset, pattern, limit - len(lines), with_torn_end=bool(following)
        )
        lines += got
        position = replace(position, offset=offset)
        if len(lines) >= limit or not following:
            break
        position = replace(position, piece=following[0], offset=0)
    return LogAnswer(lines=lines, cursor=str(position), more=_has_more(files, position))


def _next_lines(
    path: Path | None,
    offset: int,
    pattern: _Pattern | None,
    limit: int,
    *,
    with_torn_end: bool = False,
) -> tuple[list[str], int]:
    """Up to `limit` matching lines from `offset` on, and the offset behind the last one read.

    An offset beyond the end belongs to an earlier version of the file: reading restarts.
    """
    found: list[str] = []
    if path is None or not path.exists():
        return found, offset
    with open_log(path) as file:
        offset = 0 if offset > file.seek(0, 2) else offset
        for line in lines_from(file, offset, with_torn_end=with_torn_end):
            if len(found) >= limit:
                break
            found += _matching(line, pattern)
            offset = line.end
    return found, offset


def _has_more(files: dict[_Piece, Path], position: _Position) -> bool:
    path = files.get(position.piece)
    if path is not None and path.exists() and _next_lines(path, position.offset, None, 1)[0]:
        return True
    later = [files[piece] for piece in files if piece > position.piece]
    return any(path.exists() and path.stat().st_size for path in later)


class _Pattern:
    """A regular expression with a bound on the total time of its searches."""

    def __init__(self, grep: str) -> None:
        if len(grep) > _LONGEST_PATTERN:
            raise _unusable(f"it is longer than {_LONGEST_PATTERN} characters")
        try:
            self._compiled = regex.compile(grep)
        except regex.error as error:
            raise _unusable(str(error)) from error
        self._deadline = time.monotonic() + _LONGEST_SEARCH_S

    def search(self, text: str) -> bool:
        """Raises:
        UsageError: `BAD_ARGUMENT`, the time is used up.
        """
        left = self._deadline - time.monotonic()
        try:
            if left > 0:
                return self._compiled.search(text, timeout=left, concurrent=True) is not None
        except TimeoutError:
            pass
        raise _unusable(f"it took more than {_LONGEST_SEARCH_S:.0f} s on this log")


def _matching(line: LogLine, pattern: _Pattern | None) -> list[str]:
    text = shown(line.text, left_out=line.left_out)
    return [text] if pattern is None or pattern.search(text) else []


def _unusable(why: str) -> UsageError:
    return UsageError(
        "BAD_ARGUMENT",
        f"The expression can't be used: {why}.",
        "Give a simpler regular expression, special characters escaped by a backslash.",
        field="grep",
    )


def _parse(cursor: str, stream: str) -> _Position:
    found = _CURSOR.fullmatch(cursor)
    if found is None or found.group(1) != stream:
        raise UsageError(
            "CURSOR_INVALID",
            f"{cursor[:80]!r} is not a cursor of this log's {stream} stream.",
            "Pass the cursor of the last answer for the same stream, or none.",
            field="cursor",
        )
    piece = (int(found.group(2)), int(found.group(3) or _FIRST_GENERATION))
    return _Position(found.group(1), piece, int(found.group(4)))
