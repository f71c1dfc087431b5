"""What no host can report: silence, and leases that end. Each is reported when it begins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import rough_duration, usd_text
from trainer_runtime.core.protocol.states import RunState
from trainmaster.answers.monitor import MonitorEvent
from trainmaster.answers.runs import Change
from trainmaster.runs.monitor.reported_events import event_of
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

LEASE_ENDS_WITHIN_S = 3600.0
_RUN, _HOST, _LEASE = "run", "host", "lease"


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
