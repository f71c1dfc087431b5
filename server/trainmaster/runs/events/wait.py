"""Waits for an event of a run, following its host meanwhile. Only reads: the caller does what is
due for the run, as `runs.maintain.maintaining` does for commands."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.states import ENDED_RUNS, RunState
from trainmaster.answers.runs import Change, WaitAnswer
from trainmaster.answers.status import StatusAnswer
from trainmaster.errors.advice import waiting_from
from trainmaster.errors.errors import UsageError
from trainmaster.runs.events.changes import news_of
from trainmaster.runs.events.positions import Position, newest, positions_after
from trainmaster.runs.status.status import status_of
from trainmaster.sync.follow import catch_up, following
from trainmaster.sync.refresh import READ_WITHIN_S
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace

TIMEOUT = "timeout"
EVENTS = (
    "checkpoint",
    "eval",
    "phase",
    "finding",
    "running",
    "recovering",
    "completed",
    "failed",
    "stopped",
    "end",
)
ENDS = frozenset(state.value for state in ENDED_RUNS)
_STEP = re.compile(r"step:(\d{1,12})")
_READ_EVERY_S = 0.2
_WRITTEN_EVERY_S = 0.02
# Without news a state changes by silence, or by a request.
_EVALUATED_EVERY_S = 0.5
_LEAST_READ_S = 3.0
_PROGRESS_EVERY_S = 1.0
MOST_CHANGES = 20
_MOST_WHOLE = 8
_ROUTINE = frozenset({"eval", "checkpoint"})

OnProgress = Callable[[StatusAnswer], Awaitable[None]]


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
    position = positions_after(workspace, [run_id], cursor or None)[run_id]
    watch = _Watch(workspace, run_id, until, position, on_progress)
    async with following(workspace, host, run_id) as follower:
        version = workspace.metrics.version()
        while (answer := await watch.evaluate()) is None:
            follower.check()
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return watch.timed_out()
            await follower.until_written(version, min(left_s, _EVALUATED_EVERY_S))
            version = workspace.metrics.version()
    return answer


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


def changes_after(workspace: Workspace, view: RunView, position: Position) -> list[Change]:
    """What `view` shows beyond a position, in order."""
    after = (position.journal_seq, position.attempt, position.seq)
    stored = workspace.metrics.events_after(view.run.run_id, view.run.placement, after)
    seen = newest(view)  # events that came after the view was loaded belong to the next answer
    return news_of([event for event in stored if seen.covers(event)], view)


def shown_changes(changes: Sequence[Change], until: Sequence[str]) -> list[Change]:
    """The newest changes. Of many, evaluations and checkpoints that nobody waits for count only as
    each run's newest."""
    if len(changes) > _MOST_WHOLE:
        newest = {(one.run_id, one.event): one for one in changes}
        changes = [
            one
            for one in changes
            if one.event not in _ROUTINE
            or one.event in until
            or newest[one.run_id, one.event] is one
        ]
    return list(changes[-MOST_CHANGES:])


def wanted_event(until: Sequence[str], view: RunView, changes: Sequence[Change]) -> str | None:
    """The first of `until` that has happened, or has been reached. A run that waits for its turn
    runs no more, or is not known to yet."""
    happened = {change.event for change in changes}
    for wanted in until:
        step = _STEP.fullmatch(wanted)
        if step is not None and view.step >= int(step.group(1)):
            return wanted
        is_over = wanted == RunState.RUNNING.value and view.state is RunState.QUEUED
        if wanted == view.state.value or (wanted in happened and not is_over):
            return wanted
    return None


class _Watch:
    """One wait: the events since its position, and whether one is wanted."""

    def __init__(
        self,
        workspace: Workspace,
        run_id: str,
        until: Sequence[str],
        position: Position,
        on_progress: OnProgress | None,
    ) -> None:
        self._workspace = workspace
        self._run_id = run_id
        self._until = until
        self._position = position
        self._on_progress = on_progress
        self._progress_due = 0.0

    async def evaluate(self) -> WaitAnswer | None:
        now = time.monotonic()
        view = load_view(self._workspace, self._run_id)
        if self._on_progress is not None and now >= self._progress_due:
            self._progress_due = now + _PROGRESS_EVERY_S
            await self._on_progress(status_of(view))
        changes = changes_after(self._workspace, view, self._position)
        event = wanted_event(self._until, view, changes)
        if event is None and view.ended:
            event = view.state.value
        return None if event is None else self._answer(view, event, changes)

    def timed_out(self) -> WaitAnswer:
        view = load_view(self._workspace, self._run_id)
        changes = changes_after(self._workspace, view, self._position)
        return self._answer(view, TIMEOUT, changes)

    def _answer(self, view: RunView, event: str, changes: list[Change]) -> WaitAnswer:
        return WaitAnswer(
            event=event,
            run_id=view.run.run_id,
            state=view.state.value,
            step=view.step,
            cursor=str(newest(view)),
            changes=(shown := shown_changes(changes, self._until)),
            omitted=len(changes) - len(shown) or None,
            unreachable=view.unreachable,
            incomplete=view.incomplete,
            next_step=self._next_step(view, event),
        )

    def _next_step(self, view: RunView, event: str) -> str:
        if event == TIMEOUT:
            until = ",".join(self._until)
            wait = command(
                "wait", view.run.run_id, "--until", until, "--timeout", "14400", in_shell=True
            )
            return waiting_from(str(newest(view)), wait)
        return waiting_from(str(newest(view)), status_of(view).next_step)


def check_events(until: Sequence[str]) -> None:
    for wanted in until:
        if wanted not in EVENTS and not _STEP.fullmatch(wanted):
            raise UsageError(
                "BAD_ARGUMENT",
                f"{wanted!r} is not an event that can be waited for.",
                f"Use {', '.join(EVENTS)} or step:N, several with commas between them.",
                field="until",
            )
