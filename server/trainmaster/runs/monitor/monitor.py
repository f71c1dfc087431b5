"""Reports what happens to runs, following their hosts meanwhile. Only reads."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import rough_duration, usd_text
from trainer_runtime.core.protocol.states import ENDED_RUNS, RunState
from trainmaster.answers.base import Number
from trainmaster.answers.monitor import MonitorEvent
from trainmaster.answers.runs import Change
from trainmaster.runs.events.news import news_of
from trainmaster.runs.events.positions import BEGINNING, Position, newest
from trainmaster.runs.monitor.monitor_record import MonitorRecord, Reported
from trainmaster.runs.status.status import status_of
from trainmaster.store.failures import Failures
from trainmaster.sync.follow import catch_up
from trainmaster.sync.followed_hosts import FollowedHosts
from trainmaster.sync.refresh import READ_WITHIN_S
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace

_STATES = frozenset(state.value for state in RunState)
_ENDS = frozenset(state.value for state in ENDED_RUNS)
_BEFORE_STEPS = frozenset({RunState.PREPARING.value, RunState.QUEUED.value})
_TO_DIAGNOSE = frozenset({"finding", RunState.FAILED.value})
_LOSSES = ("loss", "val_loss")
DEFAULT_NAME = "default"
Report = Callable[[MonitorEvent], Awaitable[None]]
_LEAST_PAUSE_S = 0.5
# Without news a run is lost by silence, and a lease ends.
_LONGEST_PAUSE_S = 5.0
# Of the time that a round takes: a monitor is there for days.
_PAUSES = 20.0
# Of the runs that were launched or resumed while no monitor was there.
_MOST_CHECKED = 200
LEASE_ENDS_WITHIN_S = 3600.0
_RUN, _HOST, _LEASE = "run", "host", "lease"


async def monitor(
    workspace: Workspace,
    runs: Sequence[str] = (),
    *,
    name: str = DEFAULT_NAME,
    report: Report,
    is_heard: Callable[[], bool] = lambda: True,
) -> None:
    """Give each event of these runs to `report`, once under this name: findings, new states, ends,
    hosts that are lost or back, leases that end within the hour.

    Without runs: of all, also those that are launched meanwhile, until nobody `is_heard` to listen;
    else until all of them have ended. The first call under a name begins now, a later one where
    the last one ended, also by kill -9: an event is recorded as soon as `report` has returned.

    Raises:
        UsageError: `BAD_ARGUMENT` for the name.
        StateError: `RUN_NOT_FOUND`.
        BrokenPipeError: from `report`; that event counts as not reported.
    """
    chosen = [workspace.control.run(run).run_id for run in runs]
    record = MonitorRecord(workspace.home, name, time.time())
    try:
        if record.is_new:
            await _catch_up(workspace)
        await _report_on(workspace, Monitor(workspace, record, chosen, report), record, is_heard)
    finally:
        record.close()


async def _catch_up(workspace: Workspace) -> None:
    """What happened before is read, and the clocks of the hosts are known."""
    hosts = workspace.control.hosts_of_open_runs()
    await asyncio.gather(*(catch_up(workspace, host, READ_WITHIN_S) for host in hosts))


async def _report_on(
    workspace: Workspace, watch: Monitor, record: MonitorRecord, is_heard: Callable[[], bool]
) -> None:
    followed = FollowedHosts(workspace)
    try:
        while is_heard():
            began, version = time.monotonic(), workspace.metrics.version()
            hosts = await watch.round()
            if watch.is_over:
                return
            await followed.follow(hosts)
            await _pause(workspace, version, _PAUSES * (time.monotonic() - began))
            record.take_over()
    finally:
        await followed.follow(())


async def _pause(workspace: Workspace, version: tuple[int, int], least_s: float) -> None:
    """Wait for news since `version`, or for the time after which silence is to be judged again."""
    began = time.monotonic()
    await asyncio.sleep(max(_LEAST_PAUSE_S, least_s))
    while workspace.metrics.version() == version and time.monotonic() - began < _LONGEST_PAUSE_S:
        await asyncio.sleep(_LEAST_PAUSE_S)


class Monitor:
    """Rounds over runs: each reports what is new since the one before."""

    def __init__(
        self, workspace: Workspace, record: MonitorRecord, runs: Sequence[str], report: Report
    ) -> None:
        self._workspace = workspace
        self._record = record
        self._runs = runs
        self._report = report
        self._failures = Failures(workspace.home)
        self._seen: tuple[int, int] | None = None
        self.is_over = False

    async def round(self) -> list[str]:
        """Report what is new; the hosts that are to be followed."""
        views = list(self._views())
        for view in views:
            await self._report_run(view)
        await self._report_conditions(views)
        reported = [self._record.reported.get(run_id) for run_id in self._runs]
        self.is_over = bool(reported) and all(
            state is not None and ended(state) for state in reported
        )
        return list(dict.fromkeys(view.run.host for view in views if not view.run.closed))

    def _views(self) -> Iterator[RunView]:
        for run_id in self._chosen():
            with self._failures.caught(run_id):  # removed meanwhile, or its data can't be read
                view = load_view(self._workspace, run_id)
                self._begin(view)
                yield view

    def _chosen(self) -> list[str]:
        """The runs of which there may be news."""
        if self._runs:
            return list(self._runs)
        control = self._workspace.control
        run_ids = [run.run_id for run in control.runs(only_open=True)]
        version = control.version()
        if version != self._seen:
            is_first, self._seen = self._seen is None, version
            for listed in control.list.newest(_MOST_CHECKED):
                if self._is_new(listed.run_id, listed.created_t, is_first=is_first):
                    run_ids.append(listed.run_id)
        reported = self._record.reported
        run_ids += [run_id for run_id, state in reported.items() if not ended(state)]
        return list(dict.fromkeys(run_ids))

    def _is_new(self, run_id: str, created_t: float, *, is_first: bool) -> bool:
        """Whether there may be unreported events of a run: it was launched since this name is used,
        or resumed while no monitor was there."""
        is_known = run_id in self._record.reported
        return is_first if is_known else created_t >= self._record.began_t

    def _begin(self, view: RunView) -> None:
        """Where to begin with a run that is not in the record."""
        run_id = view.run.run_id
        if run_id in self._record.reported:
            return
        if view.run.created_t >= self._record.began_t:
            self._record.put_run(run_id, Reported(BEGINNING, ""))
            return
        began_t = self._record.began_t + view.skew_s  # by the host's clock
        placement, metrics = view.run.placement, self._workspace.metrics
        after = metrics.seen_by(run_id, placement, began_t)
        # Of a named run its end is reported in any case.
        is_known = not metrics.events_after(run_id, placement, after)
        is_known = is_known and not (self._runs and view.ended)
        reported = Reported(Position(placement, *after), view.state.value if is_known else "")
        self._record.put_run(run_id, reported)

    async def _report_run(self, view: RunView) -> None:
        run_id, events = view.run.run_id, []
        with self._failures.caught(run_id):
            events = list(events_of_run(self._workspace, view, self._record.reported[run_id]))
        for event, reported in events:
            if event is None:
                self._record.pass_over(run_id, reported)
            else:
                await self._report(event)
                self._record.put_run(run_id, reported)

    async def _report_conditions(self, views: Sequence[RunView]) -> None:
        now, reported = time.time(), self._record.conditions
        hosts = {view.run.host for view in views} if self._runs else None
        current = {
            condition.key: condition for condition in conditions(self._workspace, views, hosts, now)
        }
        for key in [key for key in reported if key not in current]:
            if (event := end_of(key, views, now)) is not None:
                await self._report(event)
            self._record.put_condition(key, None)
        for key, condition in current.items():
            if reported.get(key) != condition.token:
                await self._report(condition.event)
                self._record.put_condition(key, condition.token)


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that lasts. `token` reports this occurrence from the next of the same `key`."""

    key: str
    token: str
    event: MonitorEvent


def conditions(
    workspace: Workspace, views: Sequence[RunView], hosts: Collection[str] | None, now: float
) -> list[Condition]:
    """What holds now. `hosts`: those whose leases count, None for all."""
    return [*_silence(views, now), *_leases(workspace, hosts, now)]


def end_of(key: str, views: Sequence[RunView], now: float) -> MonitorEvent | None:
    """What to report where a condition holds no longer; None where its end says nothing."""
    kind, _, name = key.partition(":")
    for view in views:
        of_this = name == (view.run.run_id if kind == _RUN else view.run.host)
        if kind == _LEASE or not of_this or view.ended or view.state is RunState.LOST:
            continue
        if kind == _RUN:
            return event_of(Change(event="back", t=now, detail=view.state.value), view)
        return MonitorEvent(t=now, event="host_back", host=name, next_step=command("overview"))
    return None


def _silence(views: Sequence[RunView], now: float) -> Iterator[Condition]:
    """Runs that are lost: by host where the host can't be reached, else each by itself."""
    cut_off: dict[str, list[RunView]] = defaultdict(list)
    for view in views:
        if view.state is not RunState.LOST:
            continue
        if view.unreachable is not None or view.host_is_gone:
            cut_off[view.run.host].append(view)
            continue
        change = Change(
            event="lost", t=now, detail=f"silent for {rough_duration(view.silent_for_s)}"
        )
        token = f"{view.record.heartbeat_t or 0:.0f}"
        yield Condition(f"{_RUN}:{view.run.run_id}", token, event_of(change, view))
    for host, lost in cut_off.items():
        gone = " and the instance is gone" if lost[0].host_is_gone else ""
        event = MonitorEvent(
            t=now,
            event="host_lost",
            host=host,
            detail=f"open runs there: {len(lost)}, {lost[0].run.name} among them{gone}",
            next_step=command("hosts check", host) if not gone else command("costs"),
        )
        yield Condition(f"{_HOST}:{host}", "", event)


def _leases(workspace: Workspace, hosts: Collection[str] | None, now: float) -> Iterator[Condition]:
    for instance in workspace.control.instances.all():
        left_s = instance.lease_end_t - now
        if (
            not instance.open
            or left_s > LEASE_ENDS_WITHIN_S
            or (hosts is not None and instance.host not in hosts)
        ):
            continue
        event = MonitorEvent(
            t=now,
            event="lease_ends",
            host=instance.host,
            detail=f"in {rough_duration(left_s)}, {usd_text(instance.usd_per_h)}/h",
            next_step=command("costs"),
        )
        yield Condition(f"{_LEASE}:{instance.tag}", f"{instance.lease_end_t:.0f}", event)


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
