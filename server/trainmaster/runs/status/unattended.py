"""Whether a run can continue unattended: the work that only this machine does for it."""

from __future__ import annotations

import time
from collections.abc import Iterable

from trainer_runtime.core.policy.heartbeat import UNCONFIRMED_AFTER_S
from trainer_runtime.core.protocol.command import command
from trainmaster.backends import DEBUG, KAGGLE, SLURM
from trainmaster.errors.errors import StateError
from trainmaster.sync.keeper_state import keeper_problem
from trainmaster.sync.mirrored_checkpoints import OPERATOR
from trainmaster.sync.run_view import RunView
from trainmaster.sync.transfer_progress import AWAITED, TransferProgress
from trainmaster.sync.workspace import Workspace


def unattended(needs: Iterable[str], problem: str | None) -> str | None:
    """`no: WHY` where something needs a keeper and none is installed; None otherwise.

    `needs`: the work that only this machine does; `problem`: why no keeper does it.
    """
    listed = list(needs)
    if not listed or problem is None:
        return None
    return f"no: {', '.join(listed)}; {problem} ({command('keeper install')})"


def needs_of(
    mirror: str | None,
    next_session: str | None,
    *,
    ends_itself: bool = True,
    alerts: bool = False,
    sends: bool = False,
    pending: bool = False,
    silent: bool = False,
) -> list[str]:
    """The work for a run that only this machine does, in words.

    `next_session`: what begins it, where the run's place lends time; `ends_itself`: whether
    its host ends itself with its lease, or has no lease;
    `alerts`: some are sent from here; `sends`: an upload that its start waits for is under way;
    `pending`: its newest request waits for its host; `silent`: its host answers, its supervisor
    does not.
    """
    needs = []
    if next_session is not None:
        needs.append(next_session)
    if not ends_itself:
        needs.append("its instance can't end itself with its lease")
    if mirror == OPERATOR:
        needs.append("its checkpoints are copied here")
    if alerts:
        needs.append("some of its alerts are sent from here")
    if sends:
        needs.append("its data goes up from here")
    if pending:
        needs.append("its newest request is delivered from here")
    if silent:
        needs.append("its supervisor, which is silent, is started again from here")
    return needs


def unattended_run(workspace: Workspace, view: RunView) -> str | None:
    """The field `unattended` of a run's status; None once it has ended."""
    if view.ended:
        return None
    needs = needs_of(
        view.run.checkpoint.mirror,
        next_session(workspace, view.run.host),
        ends_itself=ends_itself(workspace, view.run.host),
        alerts=_sends(workspace, view.run.run_id),
        sends=_is_awaited(view.transfer, view.attempt),
        pending=not view.delivered,
        silent=_is_silent(view),
    )
    return unattended(needs, keeper_problem(workspace.home, time.time()))


def _is_silent(view: RunView) -> bool:
    if view.sessions is not None or view.link_error is not None or view.run.host == DEBUG:
        return False
    return view.delivered and view.silent_for_s > UNCONFIRMED_AFTER_S


def next_session(workspace: Workspace, host: str) -> str | None:
    """What this machine does for the next session of a run on a host that lends time, in words."""
    if host == KAGGLE:
        from trainmaster.backends.kaggle.run_status import Standing  # most hosts are others

        return Standing.needs
    record = workspace.control.host(host)
    if record is None or record.launcher != SLURM:
        return None
    from trainmaster.backends.slurm.run_status import SlurmSessions  # most hosts are others

    return SlurmSessions.needs


def ends_itself(workspace: Workspace, host: str) -> bool:
    """Whether a host ends itself with its lease, or has none."""
    instance = workspace.control.instances.by_host(host)
    return instance is None or instance.can_self_terminate


def _sends(workspace: Workspace, run_id: str) -> bool:
    rows = [row for row in workspace.control.alerts.of(run_id) if row.sender == OPERATOR]
    if not rows:
        return False
    from trainmaster.alerts.destinations import destinations  # the settings, which few runs need

    try:
        return not destinations(workspace.home).keys().isdisjoint(row.to for row in rows)
    except StateError:
        return False


def _is_awaited(progress: TransferProgress | None, attempt: int) -> bool:
    if progress is None or progress.what not in AWAITED:
        return False
    return progress.finished.get(progress.what, 0) < max(1, attempt)
