"""What boxes have cost, and what runs have: the time of their attempts, at their boxes' prices.

A box costs by the hour whether anything runs on it or not, and runs that share one are not charged
a part each: a run's dollars are what a box for it alone would have cost in its attempts' time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainer_runtime.core.protocol.journal import Record
from trainmaster.store.control.instances import RentedBox
from trainmaster.store.run import Run
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.runs import RunCost

_HOUR_S = 3600.0


def spent_usd(box: RentedBox, now: float) -> float:
    """What a box has come to, by its price and its time; nothing for one that never was."""
    began_t = box.body.get("created_t")
    if began_t is None:
        return 0.0
    until_t = now if box.ended_t is None else box.ended_t
    return max(0.0, until_t - float(began_t)) / _HOUR_S * box.usd_per_h


def committed_usd(box: RentedBox, now: float) -> float:
    """What an open lease may still come to."""
    return max(0.0, box.budget_usd - spent_usd(box, now)) if box.open else 0.0


@dataclass(frozen=True, slots=True)
class Span:
    """One attempt's life on a host, preparation included; Unix seconds. `end_t`: None where it goes
    on."""

    host: str
    begin_t: float
    end_t: float | None


def usd_of(spans: Iterable[Span], boxes: Sequence[RentedBox], now: float) -> float:
    """What these attempts cost; nothing for the time in which their host was not rented."""
    return sum(
        _seconds_in(span, box, now) / _HOUR_S * box.usd_per_h
        for span in spans
        for box in boxes
        if box.host == span.host
    )


def spans_of(workspace: Workspace, run: Run) -> list[Span]:
    """A run's attempts, each where it lived: a later place's journal begins with the earlier
    one's."""
    found: dict[int, Span] = {}
    for number, host in workspace.control.placements(run.run_id):
        for attempt, body in workspace.metrics.folds(run.run_id, number):
            told = Record.from_dict(body["record"]).attempts if attempt == 0 else ()
            for one in told:
                found.setdefault(one.number, Span(host, one.starting_t, one.ended_t))
    return list(found.values())


def cost_of(workspace: Workspace, view: RunView) -> RunCost | None:
    """A run's cost so far; None for one that was never on a rented box."""
    control = workspace.control
    hosts = {host for _, host in control.placements(view.run.run_id)}
    boxes = [box for box in control.boxes.boxes() if box.host in hosts]
    if not boxes:
        return None
    rented = None if view.ended else control.boxes.of_host(view.run.host)
    return RunCost(
        usd=round(usd_of(spans_of(workspace, view.run), boxes, view.now), 4),
        usd_per_h=None if rented is None else round(rented.usd_per_h, 4),
        budget_usd=(view.run.config.get("limits") or {}).get("budget_usd"),
    )


def _seconds_in(span: Span, box: RentedBox, now: float) -> float:
    created_t = box.body.get("created_t")
    if created_t is None:
        return 0.0
    ends = [now, *(t for t in (span.end_t, box.ended_t) if t is not None)]
    return max(0.0, min(ends) - max(span.begin_t, float(created_t)))
