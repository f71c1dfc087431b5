"""Which events of a run are reported, and in which words."""

from __future__ import annotations

from collections.abc import Iterator

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.states import ENDED_RUNS, RunState
from trainmaster.answers.base import Number
from trainmaster.answers.monitor import MonitorEvent
from trainmaster.answers.runs import Change
from trainmaster.runs.events.news import news_of
from trainmaster.runs.events.positions import Position, newest
from trainmaster.runs.monitor.monitor_record import Reported
from trainmaster.runs.status.status import status_of
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

_STATES = frozenset(state.value for state in RunState)
_ENDS = frozenset(state.value for state in ENDED_RUNS)
_BEFORE_STEPS = frozenset({RunState.PREPARING.value, RunState.QUEUED.value})
_TO_DIAGNOSE = frozenset({"finding", RunState.FAILED.value})
_LOSSES = ("loss", "val_loss")


def ended(reported: Reported) -> bool:
    """Whether the run's end was reported, and nothing since."""
    return reported.state in _ENDS


def events_of_run(
    workspace: Workspace, view: RunView, reported: Reported
) -> Iterator[tuple[MonitorEvent | None, Reported]]:
    """What happened after `reported`, in order, each with what is reported by then; None at the
    end, where what happened last is none of the events that count."""
    after, seen = reported.position, newest(view)
    for stored in workspace.metrics.events_after(
        view.run.run_id, view.run.placement, _as_stored(after)
    ):
        if not seen.covers(stored):  # came after the view was loaded: next time
            continue
        after = after.past(stored)
        for change in news_of([stored], view):
            if not _is_reported(change, reported):
                continue
            reported = Reported(after, change.event if change.event in _STATES else reported.state)
            yield event_of(change, view), reported
    if view.ended and reported.state != view.state.value:  # nobody was left to report it
        reported = Reported(after, view.state.value)
        yield event_of(Change(event=reported.state, t=view.now, detail=view.reason), view), reported
    if reported.position != after:
        yield None, Reported(after, reported.state)


def _as_stored(position: Position) -> tuple[int, int, int]:
    return position.journal_seq, position.attempt, position.seq


def _is_reported(change: Change, reported: Reported) -> bool:
    return change.event == "finding" or (change.event in _STATES and change.event != reported.state)


def event_of(change: Change, view: RunView) -> MonitorEvent:
    """The change in words: with the newest loss, and the command that leads on."""
    run_id, has_begun = view.run.run_id, change.event not in _BEFORE_STEPS
    is_to_diagnose = change.event in _TO_DIAGNOSE
    return MonitorEvent(
        t=change.t,
        event=change.event,
        run_id=run_id,
        name=view.run.name,
        host=view.run.host,
        step=change.step if change.step is not None else view.step * has_begun or None,
        detail=None if change.detail == change.event else change.detail,
        finding=change.finding,
        metrics=(has_begun and newest_losses(view)) or None,
        next_step=command("diagnose", run_id) if is_to_diagnose else command("status", run_id),
    )


def newest_losses(view: RunView) -> dict[str, Number]:
    metrics = status_of(view).metrics
    return {key: metrics[key] for key in _LOSSES if key in metrics}
