"""The state of everything: a line for each run and instance, the most pressing first.

The one rule for the overview's answer, so for the command line, MCP and the board.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.pattern_example import LOG_NOT_UNDERSTOOD
from trainer_runtime.core.diagnosis.stacks.verdict import (
    HANG_CHECKPOINT,
    HANG_COLLECTIVE,
    HANG_DATA,
    STALL,
)
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import (
    in_utc,
    number_text,
    rough_duration,
    spoken_duration,
    usd_text,
)
from trainer_runtime.core.protocol.followed_files import JOURNAL
from trainer_runtime.core.protocol.journal import NEEDS_OPERATOR
from trainer_runtime.core.protocol.states import RunState
from trainmaster.answers.overview import OverviewAnswer
from trainmaster.errors.advice import waiting_from
from trainmaster.runs.diagnosis.diagnose_run import FoundOfRun, found_of
from trainmaster.runs.events.positions import cursor_of_time, time_of
from trainmaster.runs.overview.volume_use import MONTH_H, unfinished_on, user_of
from trainmaster.runs.status.cost import committed_usd
from trainmaster.runs.status.next_step import next_step
from trainmaster.runs.status.status import status_of
from trainmaster.store.control.instances import RentedInstance
from trainmaster.store.control.run_list import ListedRun
from trainmaster.store.failures import Failures
from trainmaster.store.run import Run
from trainmaster.sync.keeper_state import keeper_problem
from trainmaster.sync.last_pass import LastPass
from trainmaster.sync.lost_runs import lost_runs
from trainmaster.sync.rebuild_state import incomplete
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace

HUNG = frozenset({STALL, HANG_CHECKPOINT, HANG_COLLECTIVE, HANG_DATA})
# What an hour of one is taken to be worth where nobody is paid for it.
_ACCELERATOR_USD, _PROCESSOR_USD = 1.0, 0.1
# Of the work of a run, the part that is lost: a hung one holds its accelerators for nothing; where
# none runs, or what runs may be thrown away, they can serve others; of a silent one it isn't known.
_HELD, _STANDING, _UNKNOWN = 1.0, 0.5, 0.25
# Without a cursor: a weekend and more.
DEFAULT_SPAN_S = 7 * 86400.0
# Of ended runs the newest: which of them ended when is known only from their files.
_MOST_ENDED = 100
# Users who ask at once get one answer, where nothing was recorded meanwhile.
_SHARED_FOR_S = 1.0
_SOON_S = 3600.0
_READ_WITHIN_S = 5.0
_NOTHING = (
    f"Nothing here yet: {command('plan', 'SPEC')}, then {command('launch', 'SPEC')}; "
    f"{command('demo')} shows a run."
)
_IDLE = f"Nothing is running: {command('runs')} lists what was trained."
_WAIT = command("wait", "--until", "finding,end", "--timeout", "3600")


@dataclass(frozen=True, slots=True)
class LostPerHour:
    """`usd`: of idle accelerators and of work that stands still. `may_follow`: nothing yet, but
    something may be lost if nobody acts. `since_t`: from when on (Unix seconds)."""

    usd: float = 0.0
    may_follow: bool = False
    since_t: float = 0.0

    @property
    def order(self) -> tuple[float, bool, float]:
        """The most first; of equal ones what may lead to more, then the older."""
        return -self.usd, not self.may_follow, self.since_t


def lost_by_run(
    view: RunView, worst: FoundOfRun | None, usd_per_h: Mapping[str, float]
) -> LostPerHour:
    """`worst`: the run's gravest open finding; `usd_per_h`: what rented hosts cost, by name."""
    since_t = view.record.state_t or view.run.created_t
    if worst is not None and not view.ended:
        since_t = view.record.findings[worst.id].opened_t if worst.by_host else since_t
    worth = usd_per_h.get(view.run.host) or _worth_usd(view)
    share = _share(view, worst)
    return LostPerHour(share * worth, worst is not None and not view.ended, since_t)


def _share(view: RunView, worst: FoundOfRun | None) -> float:
    if view.state is RunState.FAILED:
        return _STANDING
    if view.ended:
        return 0.0
    if view.state is RunState.LOST:
        return _UNKNOWN
    if worst is not None and worst.code in HUNG:
        return _HELD
    if view.record.reason == NEEDS_OPERATOR or (worst is not None and worst.severity == "critical"):
        return _STANDING
    return 0.0


def _worth_usd(view: RunView) -> float:
    compute = view.run.config.compute
    if compute.device == "cpu" and not compute.gpus:
        return _PROCESSOR_USD * compute.nodes
    return _ACCELERATOR_USD * max(compute.processes, compute.gpus or 1)


_MAY_FOLLOW = LostPerHour(may_follow=True)
_WAIT_FOR_OTHERS = f"What runs is waited for by {_WAIT}."


@dataclass(frozen=True, slots=True)
class _Pressing:
    """Something that needs attention. `next_step`: what to do. `run`: the name of the run that it
    is about, which is then listed once. `is_note`: comes after all else."""

    line: str
    next_step: str
    lost: LostPerHour = field(default_factory=LostPerHour)
    run: str | None = None
    is_note: bool = False


async def overview(
    workspace: Workspace, *, cursor: str | None = None, within_s: float = _READ_WITHIN_S
) -> OverviewAnswer:
    """What needs attention (failed runs, decisions, findings, instances, the keeper), what runs
    with its loss and the time to go, and what has ended since `cursor`, from an earlier answer.

    Of hosts that take longer than `within_s` it says what is on record.

    Raises:
        UsageError: `CURSOR_INVALID`.
    """
    now = time.time()
    since_t = now - DEFAULT_SPAN_S if not cursor else time_of(cursor)
    failures = Failures(workspace.home)
    if hosts := workspace.control.hosts_of_open_runs():
        from trainmaster.sync.follow import read_hosts  # ended runs need nothing of what follows

        await read_hosts(workspace, hosts, failures, within_s)
    basis = (cursor, workspace.control.version(), workspace.metrics.version(), failures.texts)
    shared = workspace.newest_overview
    if shared is not None and shared[0] > now - _SHARED_FOR_S and shared[1] == basis:
        return shared[2]
    answer = _on_record(workspace, now, since_t, failures)
    workspace.newest_overview = (now, basis, answer)
    return answer


def overview_on_record(workspace: Workspace) -> OverviewAnswer:
    """The same of the last days without reading a host, for who follows the hosts meanwhile."""
    now = time.time()
    return _on_record(workspace, now, now - DEFAULT_SPAN_S, Failures(workspace.home))


def _on_record(
    workspace: Workspace, now: float, since_t: float, failures: Failures
) -> OverviewAnswer:
    lacking = incomplete(workspace)
    lasts: dict[str, LastPass] = {}
    views = [
        view
        for run_id in _chosen(workspace, since_t)
        if (view := _viewed(workspace, run_id, lasts, failures)) is not None
        and (not view.ended or _is_news(workspace, view.run, since_t))
    ]
    opened = workspace.control.instances.all(only_open=True)
    usd_per_h = {row.host: row.usd_per_h for row in opened}
    pressing = [row for view in views for row in _of_run(view, usd_per_h)]
    pressing += _of_hosts(views)
    pressing += _of_instances(opened, views, now)
    with failures.caught("volumes"):
        pressing += _of_volumes(workspace, now)
    pressing += _of_keeper(workspace, views, now)
    pressing += [
        _Pressing(
            f"not read: {row.subject}: {row.code}", f"{command('doctor')} checks it.", _MAY_FOLLOW
        )
        for row in failures.rows or ()
    ]
    pressing.sort(key=lambda row: (row.is_note, row.lost.order))
    if (lost := lost_runs(workspace)) is not None:
        pressing.insert(0, _Pressing(lost, f"{command('tick')} searches the hosts."))
    if lacking is not None:  # and of what else is lost
        error = workspace.unwritable
        step = "That continues in the background." if error is None else error.fix
        pressing.insert(0, _Pressing(lacking, step))
    listed = {row.run for row in pressing}
    others = [view for view in views if view.run.name not in listed]
    return OverviewAnswer(
        attention=[row.line for row in pressing],
        running=[_line(view) for view in others if not view.ended],
        ended=[_line(view) for view in others if view.ended],
        cursor=cursor_of_time(now),
        next_step=waiting_from(cursor_of_time(now), _next_step(pressing, views)),
    )


def _chosen(workspace: Workspace, since_t: float) -> list[str]:
    """The open runs, and those of the newest closed ones of which something was heard since."""
    opened = [run_id for run_id, is_closed in workspace.control.due_runs() if not is_closed]
    closed = workspace.control.list.newest(_MOST_ENDED, only_closed=True)
    return opened + [run.run_id for run in closed if _is_news(workspace, run, since_t)]


def _viewed(
    workspace: Workspace, run_id: str, lasts: dict[str, LastPass], failures: Failures
) -> RunView | None:
    """None where it can't be read; why is among the failures. `lasts`: by host, as `load_view`
    has it."""
    with failures.caught(run_id):
        return load_view(workspace, run_id, lasts)
    return None


def _is_news(workspace: Workspace, run: Run | ListedRun, since_t: float) -> bool:
    """Whether the newest line of the run's journal arrived here since then, whatever its host's
    clock says."""
    if run.cleaned:
        return False
    try:
        return (
            workspace.mirror.of(run.run_id, run.placement).path(JOURNAL).stat().st_mtime > since_t
        )
    except OSError:
        return run.created_t > since_t


def _of_run(view: RunView, usd_per_h: Mapping[str, float]) -> Iterator[_Pressing]:
    name, state, findings = view.run.name, view.state, found_of(view)
    worst = next(
        (
            candidate
            for candidate in findings
            if not candidate.over and candidate.severity != "info"
        ),
        None,
    )
    if state is RunState.FAILED:
        why = _named(worst) if worst is not None else view.reason or ""
        line = f"{name} failed: {why}".rstrip(": ")
    elif view.record.reason == NEEDS_OPERATOR and not view.ended:
        line = f"{name} waits for a decision{'' if worst is None else f' on {_named(worst)}'}"
    elif state is RunState.LOST:
        line = f"{name} lost on {view.run.host}"
    elif worst is not None:
        line = f"{_line(view, findings)}: {_named(worst)}"
    else:
        return
    step = next_step(view, [finding for finding in findings if not finding.over])
    yield _Pressing(line, step, lost_by_run(view, worst, usd_per_h), name)


def _of_hosts(views: Sequence[RunView]) -> Iterator[_Pressing]:
    """Hosts that could not be reached just now, with the number of their open runs."""
    cut_off = [view for view in views if view.unreachable is not None and not view.ended]
    for host, runs in Counter(view.run.host for view in cut_off).items():
        line = f"{host} not reached; {runs} of its runs are open"
        yield _Pressing(line, f"{command('hosts check', host)} finds the cause.", _MAY_FOLLOW)


def _named(finding: FoundOfRun) -> str:
    return f"{finding.code} {finding.id}"


def _of_instances(
    opened: Sequence[RentedInstance], views: Sequence[RunView], now: float
) -> Iterator[_Pressing]:
    """What costs: an instance without a run, or whose lease ends soon; the others in one line."""
    used = {view.run.host for view in views if not view.ended}
    quiet: list[RentedInstance] = []
    for instance in opened:
        left_s = instance.lease_end_t - now
        price = f"{instance.host} costs {usd_text(instance.usd_per_h)}/h"
        if instance.host not in used:
            kept = f", kept until {in_utc(instance.lease_end_t)}" if instance.keep else ""
            line = f"{price}, no run on it{kept}"
            lost = LostPerHour(
                instance.usd_per_h, since_t=instance.created_t or instance.intended_t
            )
            yield _Pressing(line, f"{command('release', instance.host)} ends it.", lost)
        elif left_s < _SOON_S:
            line = f"{price}, lease ends in {spoken_duration(max(0.0, left_s))}"
            yield _Pressing(line, command("status", _first_on(instance.host, views)), _MAY_FOLLOW)
        else:
            quiet.append(instance)
    if quiet:
        usd_per_h = sum(instance.usd_per_h for instance in quiet)
        most = sum(committed_usd(instance, now) for instance in quiet)
        who = "1 instance costs" if len(quiet) == 1 else f"{len(quiet)} instances cost"
        line = f"{who} {usd_text(usd_per_h)}/h, {usd_text(most)} more at most"
        yield _Pressing(line, f"{command('costs')} lists them.", is_note=True)


def _of_volumes(workspace: Workspace, now: float) -> Iterator[_Pressing]:
    """What costs although no instance uses it."""
    for volume in workspace.control.volumes.all(only_open=True):
        if user_of(workspace, volume) is not None:
            continue
        unfinished = unfinished_on(workspace, volume)
        is_over = now >= volume.lease_end_t
        until = "its lease is over" if is_over else f"until {in_utc(volume.lease_end_t)}"
        holds = f", holds checkpoints of {', '.join(unfinished)}" if unfinished else ""
        line = (
            f"volume {volume.name} ({volume.size_gb} GB) costs {usd_text(volume.usd_per_h)}/h, "
            f"{usd_text(volume.usd_per_h * MONTH_H)} a month, no instance uses it, {until}{holds}"
        )
        lost = LostPerHour(volume.usd_per_h, since_t=volume.created_t or volume.intended_t)
        yield _Pressing(line, f"{command('release', volume.name)} deletes it.", lost)


def _first_on(host: str, views: Sequence[RunView]) -> str:
    return next(view.run.run_id for view in views if view.run.host == host and not view.ended)


def _of_keeper(workspace: Workspace, views: Sequence[RunView], now: float) -> Iterator[_Pressing]:
    """That nothing maintains what is open."""
    is_open = any(not view.ended for view in views)
    is_open = is_open or any(instance.open for instance in workspace.control.instances.all())
    problem = keeper_problem(workspace.home, now) if is_open else None
    if problem is not None:
        step = f"{command('keeper install')} has due work done on a timer."
        yield _Pressing(problem, step, is_note=True)


def _line(view: RunView, findings: Sequence[FoundOfRun] | None = None) -> str:
    """One run: its name, state unless it runs, step, loss, time to go, or why nothing is known."""
    status = status_of(view, findings)
    target = "" if status.target_step is None else f"/{status.target_step}"
    words = [f"{status.step}{target}"]
    key = next((key for key in ("loss", "val_loss") if key in status.metrics), None)
    if key is not None:
        value = status.metrics[key]
        words.append(f"{key} {number_text(value)}")
    if any(row.code == LOG_NOT_UNDERSTOOD for row in status.findings):
        words.append(LOG_NOT_UNDERSTOOD)
    if status.phase is not None:
        words.append(f"phase {status.phase.name}")
    if status.eta_s is not None:
        words.append(f"{rough_duration(status.eta_s)} to go")
    state = "" if view.state is RunState.RUNNING else f" {view.state.value}"
    return f"{view.run.name}{state} {', '.join(words)}"


def _next_step(pressing: Sequence[_Pressing], views: Sequence[RunView]) -> str:
    if pressing and not pressing[0].is_note:
        step = pressing[0].next_step
        others = pressing[0].run is not None and any(
            not view.ended and view.run.name != pressing[0].run for view in views
        )
        return f"{step} {_WAIT_FOR_OTHERS}" if others else step
    if any(not view.ended for view in views):
        return _WAIT
    return pressing[0].next_step if pressing else _IDLE if views else _NOTHING
