"""Waits for an event of any of several runs, following all their hosts meanwhile. Only reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.states import ENDED_RUNS
from trainmaster.answers.runs import Change, WaitAnswer
from trainmaster.errors.advice import waits
from trainmaster.runs.events.positions import (
    Position,
    cursor_of_many,
    newest,
    positions_after,
    runs_named,
)
from trainmaster.runs.events.wait import (
    ENDS,
    TIMEOUT,
    OnProgress,
    changes_after,
    check_events,
    shown_changes,
    until_written,
    wait_for_event,
    wanted_event,
)
from trainmaster.runs.status.status import status_of
from trainmaster.sync.follow import catch_up, following
from trainmaster.sync.rebuild_state import incomplete
from trainmaster.sync.refresh import READ_WITHIN_S
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace

ALL_ENDED = "all_ended"
_LEAST_READ_S = 3.0
_READ_EVERY_S = 0.2
# Of the time that reading all runs takes: the rest is for their hosts' news.
_PAUSES = 4.0
_PROGRESS_EVERY_S = 1.0


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
    watch = _Watch(workspace, positions_after(workspace, chosen, cursor), until, on_progress)
    async with AsyncExitStack() as stack:
        followers = [await stack.enter_async_context(following(workspace, host)) for host in hosts]
        while (answer := await watch.evaluate()) is None:
            for follower in followers:
                follower.check()
            if time.monotonic() >= deadline:
                return watch.timed_out()
            await asyncio.sleep(watch.pause_s)
            await until_written(workspace, _READ_EVERY_S)
    return answer


def _chosen(workspace: Workspace, runs: Sequence[str], cursor: str | None) -> list[str]:
    if runs:
        return list(dict.fromkeys(workspace.control.run(run).run_id for run in runs))
    still_open = [run.run_id for run in workspace.control.runs(only_open=True)]
    return list(dict.fromkeys([*still_open, *runs_named(workspace, cursor or "")]))


class _Watch:
    """One wait: the events of each run since its position, and whether one is wanted.

    `pause_s`: how long to leave the runs alone after reading them.
    """

    def __init__(
        self,
        workspace: Workspace,
        positions: dict[str, Position],
        until: Sequence[str],
        on_progress: OnProgress | None,
    ) -> None:
        self._workspace = workspace
        self._positions = positions
        self._until = until
        self._on_progress = on_progress
        self._progress_due = 0.0
        self.pause_s = 0.0

    async def evaluate(self) -> WaitAnswer | None:
        began = time.monotonic()
        seen = self._seen()
        await self._report(began, seen)
        event = next(
            ((found, view) for view, changes in seen if (found := self._event(view, changes))), None
        )
        self.pause_s = _PAUSES * (time.monotonic() - began)
        if event is not None:
            return self._answer(seen, *event)
        if all(view.ended for view, _ in seen):
            return self._answer(seen, ALL_ENDED, None)
        return None

    def timed_out(self) -> WaitAnswer:
        return self._answer(self._seen(), TIMEOUT, None)

    def _seen(self) -> list[tuple[RunView, list[Change]]]:
        found = []
        for run, position in self._positions.items():
            view = load_view(self._workspace, run)
            found.append((view, changes_after(self._workspace, view, position)))
        return found

    async def _report(self, now: float, seen: Sequence[tuple[RunView, list[Change]]]) -> None:
        view = next((view for view, _ in seen if not view.ended), None)
        if self._on_progress is not None and view is not None and now >= self._progress_due:
            self._progress_due = now + _PROGRESS_EVERY_S
            await self._on_progress(status_of(view))

    def _event(self, view: RunView, changes: Sequence[Change]) -> str | None:
        if view.ended and not changes:  # its end was reported before
            return None
        ended = next((one.event for one in reversed(changes) if one.event in ENDS), None)
        return wanted_event(self._until, view, changes) or (ended if view.ended else None)

    def _answer(
        self, seen: Sequence[tuple[RunView, list[Change]]], event: str, view: RunView | None
    ) -> WaitAnswer:
        changes = [
            change.model_copy(update={"run_id": one.run.run_id})
            for one, found in seen
            for change in found
        ]
        changes.sort(key=lambda change: change.t)
        cursor = cursor_of_many({one.run.run_id: newest(one) for one, _ in seen})
        still_open = sum(one.state not in ENDED_RUNS for one, _ in seen)
        return WaitAnswer(
            event=event,
            run_id=None if view is None else view.run.run_id,
            state=None if view is None else view.state.value,
            step=None if view is None else view.step,
            still_open=still_open,
            cursor=cursor,
            changes=(shown := shown_changes(changes, self._until)),
            omitted=len(changes) - len(shown) or None,
            unreachable=next((one.unreachable for one, _ in seen if one.unreachable), None),
            incomplete=incomplete(self._workspace),
            next_step=self._next_step(event, view, still_open, cursor),
        )

    def _next_step(self, event: str, view: RunView | None, still_open: int, cursor: str) -> str:
        if event == ALL_ENDED:
            return f"All have ended: {command('overview')} lists them."
        until = ",".join(self._until)
        if view is None:
            again = ("--until", until, "--cursor", cursor, "--timeout", "14400")
            return command("wait", *self._positions, *again, in_shell=True)
        step = status_of(view).next_step
        if not still_open:
            return step
        wait = command("wait", *self._positions, "--until", until, "--cursor", cursor)
        return wait if waits(step) else f"{step} For the others: {wait}."
