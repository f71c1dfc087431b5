"""The log of a run, or of any file, by cursor: sanitised, progress bars collapsed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from trainmaster.answers.runs import LogAnswer
from trainmaster.calls.work import Work, current_work, working
from trainmaster.calls.work_thread import in_thread
from trainmaster.errors.errors import UsageError
from trainmaster.metrics.log_file import log_file, not_readable, open_log, read_block
from trainmaster.metrics.reading_process import is_long, read_in_process
from trainmaster.runs.log.log_lines import end_of_lines, line_between
from trainmaster.runs.log.log_search import LogSearch
from trainmaster.runs.log.mirrored_logs import FIRST_GENERATION, Piece, Stream, files_of
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

# `l1`: the lines from there on; `e1`: those before it.
_CURSOR = re.compile(
    r"(l1|e1)\.(train|setup|supervisor|file)\.(\d{1,9})(?:/(\d{1,9}))?\.(\d{1,15})"
)

_BAR_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class _Position:
    """The next position to read: byte `offset` of a piece of the log; `earlier`: backwards."""

    stream: str
    piece: Piece
    offset: int
    earlier: bool = False

    def __str__(self) -> str:
        attempt, generation = self.piece
        named = f"{attempt}" if generation == FIRST_GENERATION else f"{attempt}/{generation}"
        return f"{'e1' if self.earlier else 'l1'}.{self.stream}.{named}.{self.offset}"


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
    where a later attempt has begun. Once most of the call's time is over, a search ends where it
    stands: onward at its cursor, backwards at `earlier`.

    Raises:
        StateError: `RUN_NOT_FOUND`, neither a run nor a file.
        UsageError: `BAD_ARGUMENT` for the expression, `CURSOR_INVALID`, `LOG_NOT_READABLE` for a
            file.
        StateError: `READ_TOO_LONG`.
    """
    search = LogSearch(grep, limit)
    view = None
    file = log_file(workspace, run_or_file)
    if file is not None:
        open_log(file).close()
        files = {(0, FIRST_GENERATION): file}
        stream_name = "file"
    else:
        view = await refresh(workspace, run_or_file)
        files, stream_name = files_of(workspace, view, stream), stream
    position = None if cursor is None else _parse(cursor, stream_name)
    try:
        if grep is not None and is_long(*files.values()):
            within_s, path = current_work().left_s(), next(iter(files.values()))
            wanted = files, stream_name, position, grep, limit
            answer = await read_in_process(path, _searched, within_s, *wanted)
        else:
            answer = await in_thread(_read, files, stream_name, position, search, limit)
    except OSError as error:
        raise not_readable(file or workspace.mirror.root, error) from error
    if view is None:
        return answer
    update = {"unreachable": view.unreachable, "incomplete": view.incomplete}
    return answer.model_copy(update=update)


def _searched(
    within_s: float | None,
    files: dict[Piece, Path],
    stream: str,
    position: _Position | None,
    grep: str,
    limit: int,
) -> LogAnswer:
    """As `_read`, by a process that was started for it."""
    with working(Work(within_s=within_s)):
        return _read(files, stream, position, LogSearch(grep, limit), limit)


async def last_lines(workspace: Workspace, view: RunView, *, limit: int) -> list[str]:
    """The last lines of the trainer's log that are here.

    Raises:
        StateError: `READ_TOO_LONG`.
    """
    files = files_of(workspace, view, "train")
    answer = await in_thread(_tail, files, "train", None, LogSearch(limit=limit), limit)
    return answer.lines


def _read(
    files: dict[Piece, Path],
    stream: str,
    position: _Position | None,
    search: LogSearch,
    limit: int,
) -> LogAnswer:
    if position is None or position.earlier:
        return _tail(files, stream, position, search, limit)
    return _onward(files, position, search, limit)


def _tail(
    files: dict[Piece, Path],
    stream: str,
    before: _Position | None,
    search: LogSearch,
    limit: int,
) -> LogAnswer:
    """The last lines, or the last ones before a position, read backwards piece by piece."""
    lines: list[str] = []
    end = None if before is None else replace(before, earlier=False)
    stopped: _Position | None = None
    for piece in sorted(files, reverse=True):
        if before is not None and piece > before.piece:
            continue
        behind = before.offset if before is not None and piece == before.piece else None
        new_lines, offset, left = _last_lines(
            files[piece], search, limit - len(lines), behind, with_torn_end=end is not None
        )
        end = end or _Position(stream, piece, offset)
        lines = new_lines + lines
        if left is not None:
            stopped = _Position(stream, piece, left, earlier=True)
        if len(lines) >= limit or stopped is not None:
            break
    position = end or _Position(stream, (0, FIRST_GENERATION), 0)
    earlier = None if stopped is None else str(stopped)
    return LogAnswer(lines=lines, cursor=str(position), more=False, earlier=earlier)


def _last_lines(
    path: Path, search: LogSearch, limit: int, behind: int | None, *, with_torn_end: bool
) -> tuple[list[str], int, int | None]:
    """The last `limit` lines before `behind` that match, the offset behind the last whole line, and
    where the search stopped because its time was over.

    `with_torn_end`: what follows the last whole line is one too. Without, a progress bar there is
    shown as it stands, and read again with what follows.
    """
    if not path.exists():
        return [], 0, None
    lines: list[str] = []
    with open_log(path) as file:
        size = file.seek(0, 2)
        end = size if with_torn_end else end_of_lines(file)
        if behind is None and end < size:
            torn = line_between(file, end, size)
            bar = (
                search.shown(torn)
                if b"\r" in read_block(file, end, min(size - end, _BAR_BYTES))
                else None
            )
            lines += [] if bar is None else [bar]
        end = end if behind is None else min(behind, size)
        for line, begin in search.before(file, end):
            if line is not None:
                lines.append(line)
            if len(lines) >= limit:
                break
            if search.is_over and begin > 0:
                return lines[::-1], end, begin
    return lines[::-1], end, None


def _onward(
    files: dict[Piece, Path], position: _Position, search: LogSearch, limit: int
) -> LogAnswer:
    lines: list[str] = []
    while True:
        path = files.get(position.piece)
        following = [piece for piece in sorted(files) if piece > position.piece]
        # Nothing is added to a piece that has a successor: its torn end is a line.
        got, offset = _next_lines(
            path, position.offset, search, limit - len(lines), with_torn_end=bool(following)
        )
        lines += got
        position = replace(position, offset=offset)
        if len(lines) >= limit or not following or search.is_over:
            break
        position = replace(position, piece=following[0], offset=0)
    return LogAnswer(lines=lines, cursor=str(position), more=_has_more(files, position))


def _next_lines(
    path: Path | None,
    offset: int,
    search: LogSearch,
    limit: int,
    *,
    with_torn_end: bool = False,
) -> tuple[list[str], int]:
    """Up to `limit` matching lines from `offset` on, and the offset behind the last one read.

    An offset beyond the end belongs to an earlier version of the file: reading restarts.
    """
    lines: list[str] = []
    if path is None or not path.exists():
        return lines, offset
    with open_log(path) as file:
        offset = 0 if offset > file.seek(0, 2) else offset
        for line, after in search.from_(file, offset, with_torn_end=with_torn_end):
            offset = after
            if line is not None:
                lines.append(line)
            if len(lines) >= limit or search.is_over:
                break
    return lines, offset


def _has_more(files: dict[Piece, Path], position: _Position) -> bool:
    path = files.get(position.piece)
    if path is not None and path.exists() and _next_lines(path, position.offset, LogSearch(), 1)[0]:
        return True
    later = [files[piece] for piece in files if piece > position.piece]
    return any(path.exists() and path.stat().st_size for path in later)


def _parse(cursor: str, stream: str) -> _Position:
    match = _CURSOR.fullmatch(cursor)
    if match is None or match.group(2) != stream:
        raise UsageError(
            "CURSOR_INVALID",
            f"{cursor[:80]!r} is not a cursor of this log's {stream} stream.",
            "Pass the cursor of the last answer for the same stream, or none.",
            field="cursor",
        )
    piece = (int(match.group(3)), int(match.group(4) or FIRST_GENERATION))
    return _Position(stream, piece, int(match.group(5)), earlier=match.group(1) == "e1")
