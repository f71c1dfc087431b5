"""Runs that lie on a host and that the home does not know: it was restored, or is a new one.

What this home itself recorded, by the seal of the record there, is put on record again by a tick;
what is of others only when a person names it. Nothing is started or stopped.
"""

from __future__ import annotations

import asyncio
import json
import posixpath
import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.records import dataclass
from trainmaster.answers.hosts import LeftRunRow, RecoverAnswer
from trainmaster.backends import DEBUG, KAGGLE
from trainmaster.backends.hosts import Host
from trainmaster.backends.hosts.runtime_call import Failure, RuntimeCall, runtime_call
from trainmaster.errors.errors import HostError, StateError, TrainmasterError
from trainmaster.machines.open_host import open_host
from trainmaster.runs.upkeep.host_copy import bare_record, is_run_id, own_record
from trainmaster.store import secret_values
from trainmaster.store.failures import Failures
from trainmaster.store.run import Run
from trainmaster.sync.follow import catch_up
from trainmaster.sync.lost_runs import is_search_due, record_search, searched_hosts
from trainmaster.sync.workspace import Workspace

_TIMEOUT_S = 30.0
_TICK_TIMEOUT_S = 20.0
_OF_ANOTHER = "of another home, or launched before records were kept on hosts"


@dataclass(frozen=True, slots=True)
class _Left:
    """A run's folder on a host. `run`: by its own record, or by its configuration alone; None
    where the home knows it, and only its newest request is missing."""

    run_id: str
    folder: str
    desired: Desired
    supervised: bool
    run: Run | None
    is_own: bool
    is_known: bool


async def recover_runs(workspace: Workspace, name: str, named: Sequence[str] = ()) -> RecoverAnswer:
    """Put the runs of this home that a host has on record again, and those that are named; list
    the others.

    Raises:
        HostError: `HOST_UNKNOWN`; the host can't be reached.
        StateError: `UNSUPPORTED`, runs of this place lie in the home, or in kernels.
    """
    _refuse_without_folders(name)
    left, more = await _search(workspace, name, _TIMEOUT_S)
    rows = [_recover_run(workspace, name, left_run, named) for left_run in left]
    recovered = [row.run_id for row in rows if row.state == "recovered"]
    others = [row.run_id for row in rows if row.state == "left"]
    record_search(workspace, name)
    if recovered:
        await catch_up(workspace, name)  # before anything acts by what is on record
        next_step = f"{command('status', recovered[0])} reads its state and records."
    elif others:
        next_step = f"{command('hosts recover', name, others[0])} takes that one, too."
    else:
        next_step = f"All runs on {name} are on record: {command('runs')}."
    return RecoverAnswer(host=name, runs=rows, more=more or None, next_step=next_step)


def _refuse_without_folders(name: str) -> None:
    if name == DEBUG:
        why = "its runs lie in the home itself, and are lost or restored with it"
    elif name == KAGGLE:
        why = (
            "each of its runs is a kernel at Kaggle, which can't be taken over by another home yet"
        )
    else:
        return
    raise StateError(
        "UNSUPPORTED",
        f"Runs on {name} can't be recovered: {why}.",
        "Restore a newer backup of the home. At Kaggle, the output of the kernel `tm-RUN` has the "
        "checkpoints."
        if name == KAGGLE
        else "Restore a newer backup of the home, or launch them again.",
    )


async def recover_due(workspace: Workspace, failures: Failures) -> dict[str, list[str]]:
    """For a tick: search the hosts where that is due; by run, what was done."""
    due = [host for host in searched_hosts(workspace) if is_search_due(workspace, host)]
    did: dict[str, list[str]] = {}

    async def search(host: str) -> None:
        with failures.caught(host):
            try:
                async with asyncio.timeout(_TICK_TIMEOUT_S):
                    answer = await recover_runs(workspace, host)
            except (HostError, TimeoutError):
                return  # the next tick tries again; an unreachable host is reported elsewhere
            for row in answer.runs:
                if row.state == "recovered":
                    did[row.run_id] = ["put on record again"]

    await asyncio.gather(*(search(host) for host in due))
    return did


async def count_left(workspace: Workspace, name: str) -> int:
    """How many runs on a host are not on record; at least so many.

    Raises:
        HostError: it can't be reached.
    """
    left, _ = await _search(workspace, name, _TIMEOUT_S)
    return len(left)


async def _search(workspace: Workspace, name: str, within_s: float) -> tuple[list[_Left], bool]:
    host = open_host(workspace, name)
    try:
        return await _list_left_runs(workspace, host, within_s)
    finally:
        await host.disconnect()


async def _list_left_runs(
    workspace: Workspace, host: Host, within_s: float
) -> tuple[list[_Left], bool]:
    generations = {
        run.run_id: workspace.control.desired(run.run_id)[0].generation
        for run in workspace.control.runs()
    }
    request = {"runs": posixpath.join(await host.root(), "runs"), "known": generations}
    failure = Failure(
        f"The runs on {host.name} can't be listed",
        f"{command('hosts check', host.name)} finds the cause.",
    )
    stdin = json.dumps(request).encode()
    call = RuntimeCall("left-runs", [], failure, within_s, stdin=stdin)

    def parse(answer: Fields) -> tuple[list[_Left], bool]:
        rows = [_parsed(workspace, host.name, row, generations) for row in answer.sections("runs")]
        return [row for row in rows if row is not None], answer.flag("more", False)

    return await runtime_call(host, call, parse)


def _parsed(
    workspace: Workspace, host: str, row: Fields, recorded: Collection[str]
) -> _Left | None:
    """None for what is not a run, or can't be read: no version of ours wrote it."""
    run_id = row.text("run_id")
    try:
        desired = Desired.of(row.section("desired"))
        is_known, run = run_id in recorded, None
        sealed, config = row.find_section("record"), row.find_section("config")
        own = None if sealed is None else own_record(workspace, host, run_id, sealed)
        if own is not None:
            run = own
        elif config is not None:
            run = bare_record(host, run_id, config.values, time.time())
        if not is_run_id(run_id) or not (is_known or run):
            return None
        if run is not None:
            RunConfig.parse(run.document)
    except ValueError:
        return None
    folder, supervised = row.text("folder"), row.flag("supervised", False)
    return _Left(run_id, folder, desired, supervised, run, own is not None, is_known)


def _recover_run(workspace: Workspace, host: str, left: _Left, named: Sequence[str]) -> LeftRunRow:
    reason = None
    try:
        if left.is_known:
            _renew(workspace, host, left)
        elif left.is_own or left.run_id in named:
            _put_on_record(workspace, left)
        else:
            reason = _OF_ANOTHER
    except TrainmasterError as error:
        reason = f"{error.code}: {error.message}"
    return LeftRunRow(
        run_id=left.run_id,
        state="recovered" if reason is None else "left",
        supervised=left.supervised,
        reason=reason,
    )


def _renew(workspace: Workspace, host: str, left: _Left) -> None:
    """Record a request that this home had made, and lost.

    Raises:
        StateError: the run has been placed elsewhere since.
    """
    if workspace.control.run(left.run_id).host != host:
        raise StateError(
            "UNSUPPORTED", "the run is placed on another host by now.", "Leave it as it is."
        )
    workspace.control.request(left.run_id, left.desired, time.time())
    workspace.control.set_delivered(left.run_id, left.desired.generation, time.time())


def _put_on_record(workspace: Workspace, left: _Left) -> None:
    """Raises: StateError: a secret has no value here, by which its log would be masked."""
    assert left.run is not None
    values = secret_values.find_values(workspace.home, left.run.config.secrets, {})
    secret_values.keep(workspace.home, left.run_id, values)
    name = workspace.control.free_name(left.run.name)
    run = replace(left.run, name=name)
    launcher = workspace.backend(run.host).launcher_name
    workspace.control.add_run(run, left.desired, launcher, left.folder, None)
    workspace.control.set_placed(run, time.time())
    workspace.control.set_delivered(run.run_id, left.desired.generation, time.time())
