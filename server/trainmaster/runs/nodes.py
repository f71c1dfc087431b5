"""The further hosts of a run on several: placing it there, starting their members, removing it.

The run's own host has the supervisor, and is the only one that is asked and followed.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping

from trainer_runtime.core.processes.nodes import Node, NodesConfig, moved
from trainmaster.backends import NodeProber
from trainmaster.plan.render import Bundle
from trainmaster.runs.node_states import CONNECTED, hosts_of, members_of, states_of_nodes
from trainmaster.store.run import Run
from trainmaster.sync.last_pass import record_unreachable
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace
from trainmaster.words.errors import HostError, StateError

# Within the time that a round has for a run: else its own host would be taken for unreachable.
_THOROUGH_S, _IN_PASSING_S = 8.0, 2.0


async def place_nodes(
    workspace: Workspace, run: Run, bundle: Bundle, desired: Mapping[str, bytes]
) -> None:
    """Place a run on its further hosts, and give each of all its hosts what it has to know; the
    first host has the run's folder by now. May be repeated.

    Raises:
        HostError: a host refuses or can't be reached.
    """
    hosts = hosts_of(run)
    if not hosts:
        return
    nodes = tuple(Node(str(host["name"]), str(host["address"])) for host in hosts)
    port, secret = int(run.document["nodes"]["port"]), secrets.token_hex(32)
    for rank, host in enumerate(hosts):
        backend = workspace.backend(nodes[rank].name)
        prober = NodeProber.of(backend)
        given = await prober.given_nodes(run.run_id)
        if rank == 0:
            secret = secret if given is None else given.secret
        elif given is not None and given.rank != rank:
            await backend.remove(run.run_id, ["."])
            raise _shared_folder(nodes[0].name, nodes[rank].name)
        else:
            files = {**bundle.files, **desired, "config.json": _config_of(bundle, hosts[0], host)}
            await backend.place(run.run_id, files, bundle.executable)
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
    for host in members_of(run):
        await workspace.backend(host).deliver_secrets(run.run_id, generation, values)


async def remove_from_members(workspace: Workspace, run: Run) -> int:
    """Remove an ended run's folders from its further hosts; the bytes that this freed."""
    freed = 0
    for host in members_of(run):
        freed += await workspace.backend(host).remove(run.run_id, ["."])
    return freed


def refuse_several_hosts(run: Run, what: str) -> None:
    """Raises:
    StateError: `UNSUPPORTED`, the run has several hosts.
    """
    if run.config.compute.nodes > 1:
        raise StateError(
            "UNSUPPORTED",
            f"Run {run.run_id} trains on several machines, and can't be {what}.",
            "Resume it where it is, or launch it again.",
        )


def _config_of(bundle: Bundle, first: Mapping[str, object], host: Mapping[str, object]) -> bytes:
    """The configuration for a host whose folder of shared files is another one."""
    config = json.loads(bundle.files["config.json"])
    return json.dumps(moved(config, str(first["cache"]), str(host["cache"])), indent=2).encode()


def _shared_folder(first: str, other: str) -> HostError:
    return HostError(
        "NODES_DIFFER",
        f"{first} and {other} have one folder for runs, on a disk that they share.",
        f"Give each its own: `trainmaster hosts remove {other}`, then add it again with another "
        "`--root`.",
        field="host",
    )
