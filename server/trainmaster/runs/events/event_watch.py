"""What a wait is for: the events of runs since its cursor, and the first one that is wanted."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from trainer_runtime.core.protocol.states import ENDED_RUNS, RunState
from trainer_runtime.core.records import dataclass
from trainmaster.answers.runs import Change, WaitAnswer
from trainmaster.answers.status import StatusAnswer
from trainmaster.errors.errors import UsageError
from trainmaster.runs.events.news import news_of
from trainmaster.runs.events.positions import Position, newest
from trainmaster.runs.status.status import status_of
from trainmaster.sync.rebuild_state import incomplete
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace

TIMEOUT = "timeout"
ALL_ENDED = "all_ended"
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
MOST_CHANGES = 20
_STEP = re.compile(r"step:(\d{1,12})")
_PROGRESS_EVERY_S = 1.0
_MOST_WHOLE = 8
_ROUTINE = frozenset({"eval", "checkpoint"})

OnProgress = Callable[[StatusAnswer], Awaitable[None]]
_Seen = Sequence[tuple[RunView, list[Change]]]


@dataclass(frozen=True, slots=True)
class Awaited:
    """The end of a wait: the event, its run if it is one run's, and all runs with their changes.
    `lacking`: why they may be out of date."""

    event: str
    view: RunView | None
    seen: _Seen
    lacking: str | None

    def answer(self, changes: list[Change], until: Sequence[str], **more: Any) -> WaitAnswer:
        """The answer with the newest of `changes`, and `more` of its fields."""
        return WaitAnswer(
            event=self.event,
            run_id=None if self.view is None else self.view.run.run_id,
            state=None if self.view is None else self.view.state.value,
            step=None if self.view is None else self.view.step,
            changes=(shown := shown_changes(changes, until)),
            omitted=len(changes) - len(shown) or None,
            unreachable=next((view.unreachable for view, _ in self.seen if view.unreachable), None),
            incomplete=self.lacking,
            **more,
        )


class EventWatch:
    """The events of each run since its position, and whether one is wanted.

    `of_several`: a run that had ended before its position is awaited no more, and a time-out names
    no run.
    """

    def __init__(
        self,
        workspace: Workspace,
        positions: Mapping[str, Position],
        until: Sequence[str],
        on_progress: OnProgress | None,
        *,
        of_several: bool,
    ) -> None:
        self._workspace = workspace
        self._positions = positions
        self._until = until
        self._on_progress = on_progress
        self._of_several = of_several
        self._progress_due = 0.0

    async def evaluate(self) -> Awaited | None:
        """What ends the wait; None while nothing does."""
        now = time.monotonic()
        seen = self._seen()
        await self._report(now, seen)
        for view, changes in seen:
            event = self._event(view, changes)
            if event is not None:
                return self._awaited(event, view, seen)
        is_over = all(view.ended for view, _ in seen)
        return self._awaited(ALL_ENDED, None, seen) if is_over else None

    def timed_out(self) -> Awaited:
        seen = self._seen()
        return self._awaited(TIMEOUT, None if self._of_several else seen[0][0], seen)

    def _awaited(self, event: str, view: RunView | None, seen: _Seen) -> Awaited:
        return Awaited(event, view, seen, incomplete(self._workspace))

    def _seen(self) -> _Seen:
        views = [load_view(self._workspace, run) for run in self._positions]
        return [
            (view, changes_after(self._workspace, view, position))
            for view, position in zip(views, self._positions.values(), strict=True)
        ]

    async def _report(self, now: float, seen: _Seen) -> None:
        counted = (view for view, _ in seen if not (self._of_several and view.ended))
        view = next(counted, None)
        if self._on_progress is not None and view is not None and now >= self._progress_due:
            self._progress_due = now + _PROGRESS_EVERY_S
            await self._on_progress(status_of(view))

    def _event(self, view: RunView, changes: Sequence[Change]) -> str | None:
        end: str | None = view.state.value
        if self._of_several:
            if view.ended and not changes:
                return None
            end = next((one.event for one in reversed(changes) if one.event in ENDS), None)
        return wanted_event(self._until, view, changes) or (end if view.ended else None)


def check_events(until: Sequence[str]) -> None:
    """Raises: UsageError: `BAD_ARGUMENT` for an unknown event."""
    for wanted in until:
        if wanted not in EVENTS and not _STEP.fullmatch(wanted):
            raise UsageError(
                "BAD_ARGUMENT",
                f"{wanted!r} is not an event that can be waited for.",
                f"Use {', '.join(EVENTS)} or step:N, several with commas between them.",
                field="until",
            )


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
        newest_of = {(change.run_id, change.event): change for change in changes}
        changes = [
            change
            for change in changes
            if change.event not in _ROUTINE
            or change.event in until
            or newest_of[change.run_id, change.event] is change
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
