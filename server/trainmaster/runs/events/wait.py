"""Waits for an event of a run, following its host meanwhile. Only reads: the caller does what is
due for the run, as `runs.upkeep.maintain.maintaining` does for commands."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from trainer_runtime.core.protocol.command import command
from trainmaster.answers.runs import WaitAnswer
from trainmaster.errors.advice import waiting_from
from trainmaster.runs.events.event_watch import (
    ENDS,
    TIMEOUT,
    Awaited,
    EventWatch,
    OnProgress,
    check_events,
)
from trainmaster.runs.events.positions import newest, positions_after
from trainmaster.runs.status.status import status_of
from trainmaster.sync.follow import catch_up, following
from trainmaster.sync.refresh import READ_WITHIN_S
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace

_READ_EVERY_S = 0.2
_WRITTEN_EVERY_S = 0.02
# Without news a state changes by silence, or by a request.
_EVALUATED_EVERY_S = 0.5
_LEAST_READ_S = 3.0


async def wait_for_event(
    workspace: Workspace,
    run: str,
    *,
    until: Sequence[str] = ("end",),
    timeout_s: float = 30.0,
    cursor: str | None = None,
    on_progress: OnProgress | None = None,
) -> WaitAnswer:
    """Wait until one of `until` happens, the run ends in any way, or `timeout_s` is over.

    Counted is what happens after `cursor` (from an earlier answer), after the call where none is
    given; a state or step that is reached already is an event at once. `on_progress` is given the
    status about once a second.

    Raises:
        UsageError: `BAD_ARGUMENT` for an unknown event, `CURSOR_INVALID`.
        StateError: `RUN_NOT_FOUND`.
    """
    check_events(until)
    view = load_view(workspace, run)
    run_id, host = view.run.run_id, view.run.host
    deadline = time.monotonic() + timeout_s
    await catch_up(workspace, host, min(READ_WITHIN_S, max(timeout_s, _LEAST_READ_S)))
    positions = positions_after(workspace, [run_id], cursor or None)
    watch = EventWatch(workspace, positions, until, on_progress, of_several=False)
    async with following(workspace, host, run_id) as follower:
        version = workspace.metrics.version()
        while (awaited := await watch.evaluate()) is None:
            follower.check()
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                awaited = watch.timed_out()
                break
            await follower.until_written(version, min(left_s, _EVALUATED_EVERY_S))
            version = workspace.metrics.version()
    return _answer(awaited, awaited.seen[0][0], until)


async def until_written(workspace: Workspace, bound_s: float) -> None:
    """Wait until points or events are written, by whichever process; at most `bound_s`."""
    deadline = time.monotonic() + bound_s
    version = workspace.metrics.version()
    while workspace.metrics.version() == version and time.monotonic() < deadline:
        await asyncio.sleep(_WRITTEN_EVERY_S)


async def until_attempt(workspace: Workspace, run_id: str, bound_s: float = 5.0) -> None:
    """Wait until the host has taken up the newest request, within bounds."""
    host = workspace.control.run(run_id).host
    deadline = time.monotonic() + bound_s
    while time.monotonic() < deadline:
        await catch_up(workspace, host)
        view = load_view(workspace, run_id)
        if not view.request_pending and view.attempt:
            return
        await asyncio.sleep(_READ_EVERY_S)


def exit_code(answer: WaitAnswer, until: Sequence[str]) -> int:
    """0 for a wanted event, 3 where the run ended otherwise, 4 for a time-out."""
    if answer.event == TIMEOUT:
        return 4
    wanted = answer.event in until or ("end" in until and answer.event in ENDS)
    return 0 if wanted else 3


def _answer(awaited: Awaited, view: RunView, until: Sequence[str]) -> WaitAnswer:
    if awaited.event == TIMEOUT:
        again = ("--until", ",".join(until), "--timeout", "14400")
        step = command("wait", view.run.run_id, *again, in_shell=True)
    else:
        step = status_of(view).next_step
    cursor = str(newest(view))
    changes = [change for _, changes in awaited.seen for change in changes]
    return awaited.answer(changes, until, cursor=cursor, next_step=waiting_from(cursor, step))
