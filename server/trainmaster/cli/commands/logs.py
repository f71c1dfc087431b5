"""`logs`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trainmaster.cli.output import emit_log
from trainmaster.cli.parameters import AsJson, Cursor
from trainmaster.cli.run_service import ask

if TYPE_CHECKING:
    from trainmaster.answers.runs import LogAnswer
    from trainmaster.sync.workspace import Workspace

_REREAD_AFTER_S = 1.0


def logs(
    run_or_file: Annotated[str, typer.Argument(metavar="RUN|FILE", help="A run, or a log file.")],
    *,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Keep printing until the run ends.")
    ] = False,
    cursor: Cursor = None,
    grep: Annotated[
        str | None, typer.Option("--grep", metavar="REGEX", help="Only lines that match.")
    ] = None,
    stream: Annotated[
        Literal["train", "setup", "supervisor"], typer.Option("--stream", help="Whose log.")
    ] = "train",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of lines.")] = 100,
    rank: Annotated[
        int | None,
        typer.Option("--rank", min=0, help="What this rank of several has printed last."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read a log. Prints its last lines, or with --cursor the lines after it.

    With -f, does what is due for the run meanwhile, as the keeper would.
    """
    from trainmaster.runs.log.logs import read_log

    if rank is not None:
        emit_log(_of_rank(run_or_file, rank, grep, limit), as_json, None)
        return

    words = _words(stream)

    async def read(workspace: Workspace, after: str | None) -> LogAnswer:
        return await read_log(
            workspace, run_or_file, stream=stream, cursor=after, grep=grep, limit=limit
        )

    async def read_and_print(workspace: Workspace, after: str | None) -> LogAnswer:
        answer = await read(workspace, after)
        if answer.lines:
            emit_log(answer, as_json, words)
        return answer

    async def read_on(workspace: Workspace) -> None:
        first = await read_and_print(workspace, cursor)
        async with _maintaining(workspace, run_or_file):
            await _until_the_end(workspace, run_or_file, first, read_and_print)

    if follow:
        ask(read_on, shows_progress=True)
    else:
        emit_log(ask(lambda workspace: read(workspace, cursor)), as_json, words)


def _of_rank(run: str, rank: int, grep: str | None, limit: int) -> LogAnswer:
    from trainmaster.runs.log.rank_log import read_rank_log

    return ask(lambda workspace: read_rank_log(workspace, run, rank, grep=grep, limit=limit))


def _words(stream: str) -> Callable[[str], str] | None:
    """How people read a stream's lines: None as they stand."""
    if stream != "supervisor":
        return None
    from trainmaster.cli.views.journal import journal_words

    return journal_words


def _maintaining(workspace: Workspace, run_or_file: str) -> AbstractAsyncContextManager[None]:
    """Of a file nothing is due."""
    if Path(run_or_file).is_file():
        return nullcontext()
    from trainmaster.runs.upkeep.maintain import maintaining

    return maintaining(workspace, run_or_file)


async def _until_the_end(
    workspace: Workspace,
    run_or_file: str,
    newest: LogAnswer,
    read: Callable[[Workspace, str | None], Awaitable[LogAnswer]],
) -> None:
    """Read on after `newest`, once more after the run's end; a file has none."""
    ended = False
    while newest.more or not ended:
        if not newest.more:
            ended = await _pause(workspace, run_or_file)
        newest = await read(workspace, newest.cursor)


async def _pause(workspace: Workspace, run_or_file: str) -> bool:
    """Let some time pass; whether the run has ended by then."""
    if Path(run_or_file).is_file():
        import asyncio

        await asyncio.sleep(_REREAD_AFTER_S)
        return False
    from trainmaster.runs.events.wait import wait_for_event

    waited = await wait_for_event(workspace, run_or_file, until=("end",), timeout_s=_REREAD_AFTER_S)
    return waited.event != "timeout"
