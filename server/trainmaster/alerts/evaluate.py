"""Evaluates the alerts that the client sends for a run, from what the database holds of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from trainer_runtime.core.alerts.alert import Alert, Onset
from trainer_runtime.core.alerts.message import Place, message_of
from trainer_runtime.core.alerts.watcher import Watcher
from trainer_runtime.core.protocol.alert_record import FAILED, Message
from trainmaster.alerts.rules import alerts_of, watched
from trainmaster.errors.errors import StateError
from trainmaster.store.control.alerts import AlertRow
from trainmaster.store.metrics_rows import StoredEvent
from trainmaster.sync.last_pass import last_pass
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace

_BEGINNING = (-1, 0, -1)


def evaluate_alerts(workspace: Workspace, run_id: str) -> int:
    """Fire what is due for a run; returns the number of new messages. Sends nothing.

    The position is stored with the messages, in one transaction: a kill at any moment leads to
    each of them once. The caller holds the run's advance lock.
    """
    run = workspace.control.run(run_id)
    try:
        rows = alerts_of(workspace, run)
    except StateError:
        return 0  # unreadable settings; `alerts list` and `doctor` report them
    records = workspace.control.alerts
    if not rows:
        if run.closed and not run.document.get("alerts"):  # else a destination may come back
            records.set_watched_to_end(run_id, workspace.control.desired(run_id)[0].generation)
        return 0
    before = records.watched(run_id) or {}  # a later placement's record begins with the earlier's
    view = load_view(workspace, run_id)
    watchers = [
        Watcher(watched(workspace, run, row), (before.get("watchers") or {}).get(row.id))
        for row in rows
        if row.sender == "operator"
    ]
    seen = dict(before.get("seen") or {})
    onsets = [
        *_of_events(workspace, view, watchers, before),
        *_of_points(workspace, view, watchers, seen),
        *_of_time(workspace, view, watchers),
    ]
    messages = [(_message(view, alert, onset), alert.to) for alert, onset in onsets]
    messages += _given_up(view, rows, before)
    # Without a watcher of events the cursor stays: most evaluations then have nothing to store.
    reads_events = any(watcher.reads_events for watcher in watchers)
    now = {
        "placement": run.placement,
        "cursor": list(_cursor(view)) if reads_events else before.get("cursor"),
        "seen": seen,
        "watchers": {watcher.alert.id: watcher.to_dict() for watcher in watchers},
        "taken_over": sorted({*(before.get("taken_over") or []), *_ids_given_up(view)})[-200:],
    }
    if messages or now != before:
        records.put_watched(run_id, now, messages, time.time())
    if run.closed:
        records.set_watched_to_end(run_id, view.record.generation)
    return len(messages)


def _of_events(
    workspace: Workspace, view: RunView, watchers: list[Watcher], before: Mapping[str, Any]
) -> Iterator[tuple[Alert, Onset]]:
    if not any(watcher.reads_events for watcher in watchers):
        return
    journal_seq, attempt, seq = before.get("cursor") or _BEGINNING
    upto = _cursor(view)
    stored = workspace.metrics.events_after(
        view.run.run_id, view.run.placement, (journal_seq, attempt, seq)
    )
    for stored_event in stored:
        if not _covers(upto, stored_event):
            continue  # came after the view was loaded
        for watcher in watchers:
            onset = watcher.event(stored_event.attempt, stored_event.event)
            if onset is not None:
                yield watcher.alert, onset


def _of_points(
    workspace: Workspace, view: RunView, watchers: list[Watcher], seen: dict[str, Any]
) -> Iterator[tuple[Alert, Onset]]:
    """New values of the watched metrics; `seen` holds (attempt, segment, x) of the newest."""
    for watcher in watchers:
        if watcher.key is None:
            continue
        name = watcher.alert.id
        for piece in workspace.metrics.series(view.run.run_id, watcher.key):
            newest = tuple(seen.get(name) or (-1, -1, -1))
            place = (piece.attempt, piece.segment)
            if piece.placement != view.run.placement or place < newest[:2]:
                continue
            after_x = newest[2] if place == newest[:2] else -1
            for x, t, value in workspace.metrics.points(piece.sid, from_x=after_x + 1):
                seen[name] = [*place, x]
                onset = watcher.point(piece.attempt, x, view.now if t is None else t, value)
                if onset is not None:
                    yield watcher.alert, onset


def _of_time(
    workspace: Workspace, view: RunView, watchers: list[Watcher]
) -> Iterator[tuple[Alert, Onset]]:
    progress = view.progress
    current = view.record.current
    signs = (
        progress.last_event_t if progress is not None else None,
        current.running_t if current is not None else None,
        _log_grew_t(workspace, view) if view.run.is_attached else None,
    )
    heard_t = max((t for t in signs if t is not None), default=None)
    for watcher in watchers:
        of_the_box = watcher.waits_for_loss
        onset = watcher.check_elapsed(
            view.known_until,
            state=view.state.value,
            attempt=view.attempt,
            heard_t=view.record.heartbeat_t if of_the_box else heard_t,
            step=view.step,
        )
        if onset is not None:
            yield watcher.alert, onset


def _log_grew_t(workspace: Workspace, view: RunView) -> float | None:
    """When the log of an attached training last grew in the mirror, by its host's clock: lines
    without figures count as a sign of life."""
    mirror = workspace.mirror.of(view.run.run_id, view.run.placement)
    try:
        grew_t = mirror.path(f"attempts/{view.attempt}/train.log").stat().st_mtime
    except OSError:
        return None
    return grew_t + last_pass(workspace.home, view.run.host).skew_s


def _given_up(
    view: RunView, rows: list[AlertRow], before: Mapping[str, Any]
) -> list[tuple[Message, str]]:
    """Messages that the host could not send in time; sent from here under the same id."""
    by_name = {row.to for row in rows}
    deliveries = view.record.alerts.deliveries
    return [
        (deliveries[name].message, deliveries[name].to)
        for name in _ids_given_up(view)
        if name not in (before.get("taken_over") or []) and deliveries[name].to in by_name
    ]


def _ids_given_up(view: RunView) -> list[str]:
    deliveries = view.record.alerts.deliveries
    return [
        name
        for name, delivery in deliveries.items()
        if delivery.phase == FAILED and delivery.due_t is None
    ]


def _message(view: RunView, alert: Alert, onset: Onset) -> Message:
    place = Place(view.run.run_id, view.run.host, view.run.placement, view.state.value, view.step)
    return message_of(alert, onset, place, view.now)


def _cursor(view: RunView) -> tuple[int, int, int]:
    newest = max(view.attempts, key=lambda item: item.attempt, default=None)
    return (
        view.record.last_seq,
        newest.attempt if newest else 0,
        newest.last_seq if newest else -1,
    )


def _covers(upto: tuple[int, int, int], event: StoredEvent) -> bool:
    seq = event.event.seq
    if event.attempt == 0:
        return seq <= upto[0]
    return (event.attempt, seq) <= upto[1:]
