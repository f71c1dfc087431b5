"""The act path: one idempotent step of all that is due for a run.

Only what acts calls this: launch, resume, stop, clean, the keeper's tick, a server's maintenance,
a command that waits. What reads calls `sync.refresh`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.core.policy.heartbeat import HEARTBEAT_S
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.alerts.delivery import deliver_alerts
from trainmaster.alerts.evaluate import evaluate_alerts
from trainmaster.backends import Backend, SupervisorFinder
from trainmaster.errors.errors import HostError
from trainmaster.home.assets import find_assets
from trainmaster.runs.status.node_states import has_lost_node
from trainmaster.runs.upkeep.further_hosts import place_nodes, start_members
from trainmaster.runs.upkeep.host_copy import record_file
from trainmaster.runs.upkeep.secret_delivery import deliver_secrets, forget_secrets
from trainmaster.store.run import Run
from trainmaster.sync.last_pass import record_unreachable
from trainmaster.sync.run_view import RunView, ended_instance, load_view
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.transfer import begin_transfers


async def advance(
    workspace: Workspace,
    run_id: str,
    *,
    thorough: bool = True,
    pauses: bool = False,
    supervised: SupervisedRuns | None = None,
) -> list[str]:
    """Do what is due for a run; what was done, in words, empty where nothing was.

    `thorough` asks the host whether a supervisor lives; otherwise its heartbeat is trusted.
    `pauses`: also then, a place that has refused the next session is not asked before its time.
    `supervised`: what the host says of several runs at once. Where another process advances the
    same run, it is left to that one.

    Raises:
        HostError: the host refuses or can't be reached; what was not done is still due.
    """
    lock = try_lock(workspace.home.advance_lock(run_id))
    if lock is None:
        return []
    try:
        run = workspace.control.run(run_id)
        try:
            desired, delivered = workspace.control.desired(run_id)
            due = _Due(workspace, run, desired, delivered, thorough, pauses, supervised)
            return await _take_steps(due)
        except HostError as error:
            if error.unreachable:
                record_unreachable(workspace.home, run.host, error)
            raise
    finally:
        os.close(lock)


def fire_alerts(workspace: Workspace, run_id: str) -> None:
    """Record which alerts are due for a run, by what was read, unless another process advances it;
    sends nothing."""
    lock = try_lock(workspace.home.advance_lock(run_id))
    if lock is not None:
        try:
            evaluate_alerts(workspace, run_id)
        finally:
            os.close(lock)


@dataclass(slots=True)
class _Due:
    """A run for which something may be due, and its newest request."""

    workspace: Workspace
    run: Run
    desired: Desired
    delivered: bool
    thorough: bool
    pauses: bool
    supervised: SupervisedRuns | None
    acted: bool = False

    @property
    def backend(self) -> Backend:
        return self.workspace.backend(self.run.host)

    @property
    def view(self) -> RunView:
        return load_view(self.workspace, self.run.run_id)


# Does what is due of one kind; returns a description, None where nothing was due.
_Step = Callable[[_Due], Awaitable[str | None]]


async def _take_steps(due: _Due) -> list[str]:
    did = []
    for step in _steps_of(due):
        done = await step(due)
        if done is not None:
            due.acted = True
            did.append(done)
    return did


def _steps_of(due: _Due) -> tuple[_Step, ...]:
    """In the order in which they are taken."""
    if due.run.cleaned or ended_instance(due.workspace, due.run.host) is not None:
        return ()
    if due.run.closed:
        return (_begin_transfers, _withdraw_secrets, _forget_secrets)
    return (
        _place,
        _deliver_request,
        _deliver_alerts,
        _start_supervisor,
        _begin_transfers,
        _withdraw_secrets,
    )


async def _place(due: _Due) -> str | None:
    if due.workspace.control.is_placed(due.run):
        return None
    from trainmaster.plan.render import render_recorded  # once in a run's life, and heavy

    bundle = render_recorded(due.run.document, due.run.plan, find_assets())
    desired = {"desired.json": json.dumps(due.desired.to_dict()).encode()}
    files = {**bundle.files, **desired, **record_file(due.workspace, due.run)}
    await due.backend.place(due.run.run_id, files, bundle.executable)
    await place_nodes(due.workspace, due.run, desired)
    due.workspace.control.set_placed(due.run, time.time())
    return "placed"


async def _deliver_request(due: _Due) -> str | None:
    """With what it needs: its secrets, and the alerts that its host sends."""
    if due.delivered:
        return None
    await deliver_secrets(due.workspace, due.run, due.desired)
    await deliver_alerts(due.workspace, due.run, due.desired)
    await due.backend.request(due.run.run_id, due.desired)
    due.workspace.control.set_delivered(due.run.run_id, due.desired.generation, time.time())
    return f"requested {due.desired.state.value}"


async def _deliver_alerts(due: _Due) -> str | None:
    changed = due.delivered and await deliver_alerts(due.workspace, due.run, due.desired)
    return "delivered alerts" if changed else None


async def _start_supervisor(due: _Due) -> str | None:
    view = due.view
    if not (due.acted or due.thorough or _is_silent(view) or has_lost_node(view)):
        return None
    if view.record.closed and not view.request_pending:
        return None
    if due.pauses and not due.acted and view.sessions is not None and view.sessions.is_paused:
        return None
    started = await start_members(due.workspace, view, thorough=due.acted or due.thorough)
    said = f"started the members on {', '.join(started)}" if started else None
    if not due.acted and due.supervised is not None and await due.supervised.has(due.run.run_id):
        return said
    return "started the supervisor" if await due.backend.start(due.run.run_id) else said


async def _begin_transfers(due: _Due) -> str | None:
    return "started a transfer" if begin_transfers(due.workspace, due.run) else None


async def _withdraw_secrets(due: _Due) -> str | None:
    """For a run at Kaggle, whose secrets no supervisor removes."""
    view = due.view if due.run.config.secrets else None
    if view is None or view.sessions is None or view.sessions.alive:
        return None
    if not view.ended or view.request_pending:
        return None
    return "withdrew its secrets" if await due.backend.withdraw_secrets(due.run.run_id) else None


async def _forget_secrets(due: _Due) -> str | None:
    return "forgot its secrets" if forget_secrets(due.workspace, due.view) else None


def _is_silent(view: RunView) -> bool:
    if view.sessions is not None:
        is_stopped = view.desired.state is DesiredState.STOPPED and not view.sessions.runs
        return view.sessions.wants_start or is_stopped  # a job that waits is taken from its queue
    heard = view.record.heartbeat_t
    return heard is None or view.now - heard > 1.5 * HEARTBEAT_S


class SupervisedRuns:
    """Of these runs of one host. The host is asked when an answer is first needed."""

    def __init__(self, workspace: Workspace, host: str, run_ids: Sequence[str]) -> None:
        self._workspace = workspace
        self._host = host
        self._run_ids = run_ids
        self._found: frozenset[str] | None = None

    async def has(self, run_id: str) -> bool:
        """Whether the host has said that the run's supervisor lives; False where it is to be asked
        for this run alone.

        Raises:
            HostError: the host can't be reached.
        """
        if self._found is None:
            self._found = frozenset()
            self._found = await self._ask()
        return run_id in self._found

    async def _ask(self) -> frozenset[str]:
        finder = SupervisorFinder.find(self._workspace.backend(self._host))
        if finder is None or len(self._run_ids) < 2:
            return frozenset()
        try:
            return await finder.supervised(self._run_ids)
        except HostError as error:
            if error.unanswered:
                raise
            return frozenset()
