"""The cost of rented instances and of runs: attempts' time at the price of their instances.

An instance costs by the hour whether anything runs on it or not. Runs that share one are not
charged a part each: a run's cost is that of an instance for it alone during its attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainer_runtime.core.protocol.journal import Record
from trainmaster.store.control_instances import RentedBox
from trainmaster.store.run import Run
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.runs import RunCost

_HOUR_S = 3600.0


def spent_usd(instance: RentedBox, now: float) -> float:
    """The cost of an instance, by its price and its time; zero for one that was never created."""
    began_t = instance.body.get("created_t")
    if began_t is None:
        return 0.0
    until_t = now if instance.ended_t is None else instance.ended_t
    return max(0.0, until_t - float(began_t)) / _HOUR_S * instance.usd_per_h


def committed_usd(instance: RentedBox, now: float) -> float:
    """What an open lease may still cost."""
    return max(0.0, instance.budget_usd - spent_usd(instance, now)) if instance.open else 0.0


@dataclass(frozen=True, slots=True)
class Span:
    """One attempt's life on a host, preparation included; Unix seconds. `end_t`: None while it
    runs."""

    host: str
    begin_t: float
    end_t: float | None


def usd_of(spans: Iterable[Span], instances: Sequence[RentedBox], now: float) -> float:
    """The cost of these attempts; zero for the time in which their host was not rented."""
    return sum(
        _seconds_in(span, instance, now) / _HOUR_S * instance.usd_per_h
        for span in spans
        for instance in instances
        if instance.host == span.host
    )


def spans_of(workspace: Workspace, run: Run) -> list[Span]:
    """A run's attempts, each on the host where it ran: a later placement's journal begins with the
    earlier one's."""
    found: dict[int, Span] = {}
    for number, host in workspace.control.placements(run.run_id):
        for attempt, body in workspace.metrics.folds(run.run_id, number):
            attempts = Record.from_dict(body["record"]).attempts if attempt == 0 else ()
            for one in attempts:
                found.setdefault(one.number, Span(host, one.starting_t, one.ended_t))
    return list(found.values())


def cost_of(workspace: Workspace, view: RunView) -> RunCost | None:
    """A run's cost so far; None for one that was never on a rented instance."""
    control = workspace.control
    hosts = {host for _, host in control.placements(view.run.run_id)}
    instances = [one for one in control.boxes.boxes() if one.host in hosts]
    if not instances:
        return None
    rented = None if view.ended else control.boxes.of_host(view.run.host)
    return RunCost(
        usd=round(usd_of(spans_of(workspace, view.run), instances, view.now), 4),
        usd_per_h=None if rented is None else round(rented.usd_per_h, 4),
        budget_usd=view.run.config.limits.budget_usd,
    )


def _seconds_in(span: Span, instance: RentedBox, now: float) -> float:
    created_t = instance.body.get("created_t")
    if created_t is None:
        return 0.0
    ends = [now, *(t for t in (span.end_t, instance.ended_t) if t is not None)]
    return max(0.0, min(ends) - max(span.begin_t, float(created_t)))
