"""Waits for an event of any of several runs, following all their hosts meanwhile. Only reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from trainer_runtime.core.protocol.command import command
from trainmaster.answers.runs import WaitAnswer
from trainmaster.errors.advice import waits
from trainmaster.runs.events.event_watch import (
    ALL_ENDED,
    TIMEOUT,
    Awaited,
    EventWatch,
    OnProgress,
    check_events,
)
from trainmaster.runs.events.positions import (
    cursor_of_many,
    newest,
    positions_after,
    runs_named,
)
from trainmaster.runs.events.wait import until_written, wait_for_event
from trainmaster.runs.status.status import status_of
from trainmaster.sync.follow import catch_up, following
from trainmaster.sync.refresh import READ_WITHIN_S
from trainmaster.sync.workspace import Workspace

_LEAST_READ_S = 3.0
_READ_EVERY_S = 0.2
# Of the time that reading all runs takes: the rest is for their hosts' news.
_PAUSES = 4.0


async def wait_for_runs(
    workspace: Workspace,
    runs: Sequence[str],
    *,
    until: Sequence[str],
    timeout_s: float,
    cursor: str | None,
    on_progress: OnProgress | None = None,
) -> WaitAnswer:
    """Wait for one run as `wait_for_event` does, for several or none as `wait_for_any`."""
    if len(runs) == 1:
        return await wait_for_event(
            workspace,
            runs[0],
            until=until,
            timeout_s=timeout_s,
            cursor=cursor,
            on_progress=on_progress,
        )
    return await wait_for_any(
        workspace,
        runs,
        until=until,
        timeout_s=timeout_s,
        cursor=cursor,
        on_progress=on_progress,
    )


async def wait_for_any(
    workspace: Workspace,
    runs: Sequence[str] = (),
    *,
    until: Sequence[str] = ("end",),
    timeout_s: float = 30.0,
    cursor: str | None = None,
    on_progress: OnProgress | None = None,
) -> WaitAnswer:
    """Wait until one of `until` happens to any of these runs, one of them ends, or `timeout_s` is
    over; without runs: those that are open now, and those of the cursor.

    `cursor`: from any earlier answer (of a wait, a launch, an overview); what is after it counts,
    and is reported once. A run that had ended by then is awaited no more; `all_ended` where that is
    all of them.

    Raises:
        UsageError: `BAD_ARGUMENT` for an unknown event, `CURSOR_INVALID`.
        StateError: `RUN_NOT_FOUND`.
    """
    check_events(until)
    chosen = _chosen(workspace, runs, cursor)
    hosts = list(dict.fromkeys(workspace.control.run(run).host for run in chosen))
    deadline = time.monotonic() + timeout_s
    bound_s = min(READ_WITHIN_S, max(timeout_s, _LEAST_READ_S))
    await asyncio.gather(*(catch_up(workspace, host, bound_s) for host in hosts))
    positions = positions_after(workspace, chosen, cursor)
    watch = EventWatch(workspace, positions, until, on_progress, of_several=True)
    async with AsyncExitStack() as stack:
        followers = [await stack.enter_async_context(following(workspace, host)) for host in hosts]
        began = time.monotonic()
        while (awaited := await watch.evaluate()) is None:
            for follower in followers:
                follower.check()
            if time.monotonic() >= deadline:
                awaited = watch.timed_out()
                break
            await asyncio.sleep(_PAUSES * (time.monotonic() - began))
            await until_written(workspace, _READ_EVERY_S)
            began = time.monotonic()
    return _answer(awaited, [*positions], until)


def _chosen(workspace: Workspace, runs: Sequence[str], cursor: str | None) -> list[str]:
    if runs:
        return list(dict.fromkeys(workspace.control.run(run).run_id for run in runs))
    still_open = [run.run_id for run in workspace.control.runs(only_open=True)]
    return list(dict.fromkeys([*still_open, *runs_named(workspace, cursor or "")]))


def _answer(awaited: Awaited, runs: Sequence[str], until: Sequence[str]) -> WaitAnswer:
    changes = [
        change.model_copy(update={"run_id": view.run.run_id})
        for view, news in awaited.seen
        for change in news
    ]
    changes.sort(key=lambda change: change.t)
    cursor = cursor_of_many({view.run.run_id: newest(view) for view, _ in awaited.seen})
    still_open = sum(not view.ended for view, _ in awaited.seen)
    step = _next_step(awaited, runs, ",".join(until), still_open, cursor)
    return awaited.answer(changes, until, still_open=still_open, cursor=cursor, next_step=step)


def _next_step(
    awaited: Awaited, runs: Sequence[str], until: str, still_open: int, cursor: str
) -> str:
    if awaited.event == ALL_ENDED:
        return f"All have ended: {command('overview')} lists them."
    if awaited.view is None or awaited.event == TIMEOUT:
        again = ("--until", until, "--cursor", cursor, "--timeout", "14400")
        return command("wait", *runs, *again, in_shell=True)
    step = status_of(awaited.view).next_step
    if not still_open:
        return step
    wait = command("wait", *runs, "--until", until, "--cursor", cursor)
    return wait if waits(step) else f"{step} For the others: {wait}."
