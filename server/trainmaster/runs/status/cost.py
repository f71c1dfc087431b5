"""Costs of rented instances and of runs.

An instance costs by the hour, also while nothing runs on it. A run costs the time of its attempts
at the price of the instance of each; runs that share an instance do not share its price.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.status.reckoning import IDLE, QUEUE, Reckoning
from trainmaster.answers.status import RunCost
from trainmaster.store.control.instances import RentedInstance
from trainmaster.store.run import Run
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

_HOUR_S = 3600.0


class Rented(Protocol):
    """What costs by the hour: an instance, or a network volume."""

    @property
    def intended_t(self) -> float: ...
    @property
    def created_t(self) -> float | None: ...
    @property
    def ended_t(self) -> float | None: ...
    @property
    def open(self) -> bool: ...
    @property
    def usd_per_h(self) -> float: ...
    @property
    def budget_usd(self) -> float: ...


def all_rented(workspace: Workspace) -> list[Rented]:
    """The instances and volumes on record."""
    control = workspace.control
    return [*control.instances.all(), *control.volumes.all()]


def spent_usd(rented: Rented, now: float) -> float:
    """The cost of an instance or volume so far; 0 for one that was never created."""
    if rented.created_t is None:
        return 0.0
    until_t = now if rented.ended_t is None else rented.ended_t
    return max(0.0, until_t - rented.created_t) / _HOUR_S * rented.usd_per_h


def committed_usd(rented: Rented, now: float) -> float:
    """The maximum further cost of an open lease."""
    return max(0.0, rented.budget_usd - spent_usd(rented, now)) if rented.open else 0.0


@dataclass(frozen=True, slots=True)
class Span:
    """One attempt's time on a host, preparation included, in Unix seconds. `end_t`: None while it
    runs."""

    host: str
    begin_t: float
    end_t: float | None
    attempt: int = 0


def usd_of(spans: Iterable[Span], instances: Sequence[RentedInstance], now: float) -> float:
    """The cost of attempts; 0 for the time in which their host was not rented."""
    return sum(
        _seconds_in(span, instance, now) / _HOUR_S * instance.usd_per_h
        for span in spans
        for instance in instances
        if instance.host == span.host
    )


def usd_by_cause(
    reckoning: Reckoning, spans: Iterable[Span], instances: Sequence[RentedInstance], now: float
) -> dict[str, float]:
    """The cost of a run by what its time went to: that of its attempts, as `usd_of` has it, and of
    the time in which their hosts waited for a restart."""
    by_attempt = {span.attempt: span for span in spans}
    within: dict[int, float] = defaultdict(float)
    for part in reckoning.parts:
        within[part.attempt] += 0.0 if part.begin_t is not None else part.seconds
    usd: dict[str, float] = defaultdict(float)
    for part in reckoning.parts:
        span = by_attempt.get(part.attempt)
        if span is None or (part.begin_t is not None and part.cause in (IDLE, QUEUE)):
            continue
        if part.begin_t is None:
            share = part.seconds / within[part.attempt]
            usd[part.cause] += share * usd_of([span], instances, now)
        else:
            waiting = Span(span.host, part.begin_t, part.begin_t + part.seconds)
            usd[part.cause] += usd_of([waiting], instances, now)
    return usd


def spans_of(workspace: Workspace, run: Run) -> list[Span]:
    """A run's attempts, each on its own host. A later placement's journal starts as a copy of the
    earlier one, so the first placement that has an attempt counts."""
    spans: dict[int, Span] = {}
    for number, host in workspace.control.placements(run.run_id):
        for attempt, body in workspace.metrics.folds(run.run_id, number):
            attempts = Record.from_dict(body["record"]).attempts if attempt == 0 else ()
            for record in attempts:
                span = Span(host, record.starting_t, record.ended_t, record.number)
                spans.setdefault(record.number, span)
    return list(spans.values())


def cost_of(workspace: Workspace, view: RunView) -> RunCost | None:
    """A run's cost so far; None if it was never on a rented instance."""
    control = workspace.control
    hosts = {host for _, host in control.placements(view.run.run_id)}
    instances = [instance for instance in control.instances.all() if instance.host in hosts]
    if not instances:
        return None
    rented = None if view.ended else control.instances.by_host(view.run.host)
    return RunCost(
        usd=round(usd_of(spans_of(workspace, view.run), instances, view.now), 4),
        usd_per_h=None if rented is None else round(rented.usd_per_h, 4),
        budget_usd=view.run.config.limits.budget_usd,
    )


def _seconds_in(span: Span, instance: RentedInstance, now: float) -> float:
    if instance.created_t is None:
        return 0.0
    ends = [now, *(t for t in (span.end_t, instance.ended_t) if t is not None)]
    return max(0.0, min(ends) - max(span.begin_t, instance.created_t))
