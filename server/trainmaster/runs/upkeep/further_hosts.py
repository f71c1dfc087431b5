"""The further hosts of a run on several: placing it there, starting their members, removing it.

The run's own host has the supervisor, and is the only one that is asked and followed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping

from trainer_runtime.core.processes.nodes import Node, NodesConfig, moved
from trainer_runtime.core.protocol.command import command, option
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.backends import NodeProber
from trainmaster.errors.errors import HostError
from trainmaster.home.assets import find_assets
from trainmaster.runs.status.node_states import CONNECTED, hosts_of, members_of, states_of_nodes
from trainmaster.store import secret_values
from trainmaster.store.run import Run
from trainmaster.sync.last_pass import record_unreachable
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

# Within the time that a round has for a run: else its own host would be taken for unreachable.
_THOROUGH_S, _IN_PASSING_S = 8.0, 2.0


async def place_nodes(workspace: Workspace, run: Run, desired: Mapping[str, bytes]) -> None:
    """Place a run on its further hosts, rendered for the folder of each for shared files, and give
    each of all its hosts what it has to know; the first host has the run's folder by now. May be
    repeated.

    Raises:
        HostError: a host refuses or can't be reached.
    """
    hosts = hosts_of(run)
    if not hosts:
        return
    from trainmaster.plan.render import render_recorded  # once in a run's life, and heavy

    nodes = tuple(Node(str(host["name"]), str(host["address"])) for host in hosts)
    port, secret = int(run.document["nodes"]["port"]), secrets.token_hex(32)
    for rank, host in enumerate(hosts):
        backend = workspace.backend(nodes[rank].name)
        prober = NodeProber.of(backend)
        placed = await prober.given_nodes(run.run_id)
        if rank == 0:
            secret = secret if placed is None else placed.secret
        elif placed is not None and placed.rank != rank:
            await backend.remove(run.run_id, ["."])
            raise _shared_folder(nodes[0].name, nodes[rank].name)
        else:
            document = moved(run.document, str(hosts[0]["cache"]), str(host["cache"]))
            bundle = render_recorded(document, run.plan, find_assets())
            await backend.place(run.run_id, {**bundle.files, **desired}, bundle.executable)
        await prober.deliver_nodes(run.run_id, NodesConfig(rank, port, secret, nodes))


async def start_members(workspace: Workspace, view: RunView, *, thorough: bool) -> list[str]:
    """Make sure that a run that has not ended has its members; those that had to be started.

    `thorough`: ask each host; otherwise only those of which the supervisor hears nothing. A host
    that refuses or can't be reached keeps none of the others from starting: the run waits for it.
    """
    started = []
    for host in members_of(view.run):
        if not thorough and states_of_nodes(view).get(host) == CONNECTED:
            continue
        try:
            async with asyncio.timeout(_THOROUGH_S if thorough else _IN_PASSING_S):
                await _deliver_late_secrets(workspace, view, host)
                if await workspace.backend(host).start(view.run.run_id):
                    started.append(host)
        except TimeoutError:
            continue  # a later round asks again
        except HostError as error:
            if error.unreachable:
                record_unreachable(workspace.home, host, error)
    return started


async def deliver_secrets_to_members(
    workspace: Workspace, run: Run, generation: int, values: Mapping[str, str]
) -> None:
    """Deliver secrets to the further hosts. Where the run may continue without some of them, those
    that can't be reached get theirs when their members are started.

    Raises:
        HostError: a host refuses, or can't be reached and can't be left out.
    """
    within_s = None if run.config.compute.min_nodes is None else _IN_PASSING_S
    for host in members_of(run):
        try:
            async with asyncio.timeout(within_s):
                backend = workspace.backend(host)
                await backend.deliver_secrets(run.run_id, generation, values)
        except (TimeoutError, HostError) as error:
            if within_s is None or not (isinstance(error, TimeoutError) or _is_away(error)):
                raise


async def remove_from_members(workspace: Workspace, run: Run) -> tuple[int, list[str]]:
    """Remove an ended run's folders from its further hosts; the bytes that this freed, and the
    hosts that can't be reached, or are not known any more, and so keep theirs."""
    freed, left = 0, []
    for host in members_of(run):
        try:
            freed += await workspace.backend(host).remove(run.run_id, ["."])
        except HostError as error:
            if not _is_away(error):
                raise
            left.append(host)
    return freed, left


async def _deliver_late_secrets(workspace: Workspace, view: RunView, host: str) -> None:
    """What `deliver_secrets_to_members` may have left out; nothing of a run that has ended."""
    run, desired = view.run, view.desired
    names = run.config.secrets if run.config.compute.min_nodes is not None else ()
    if names and desired.state is DesiredState.RUNNING and not view.ended:
        try:
            values = secret_values.kept(workspace.home, run.run_id, names)
        except HostError:
            return  # removed here since: the host may still have them
        backend = workspace.backend(host)
        await backend.deliver_secrets(run.run_id, desired.generation, values)


def _is_away(error: HostError) -> bool:
    return error.unreachable or error.code == "HOST_UNKNOWN"


def _shared_folder(first: str, other: str) -> HostError:
    return HostError(
        "NODES_DIFFER",
        f"{first} and {other} have one folder for runs, on a disk that they share.",
        f"Give each its own: {command('hosts remove', other)}, then add it again with another "
        f"{option('--root')}.",
        field="host",
    )
