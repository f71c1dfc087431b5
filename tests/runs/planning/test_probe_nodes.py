"""By which address the hosts of a training meet: connections between threads, each of which knows
the addresses that its host would."""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.runs.running_run import run_async

from trainer_runtime.core.processes.nodes import NodesConfig
from trainer_runtime.core.processes.reaching import Peer
from trainer_runtime.host.answer import reach
from trainmaster.backends import NodeProber
from trainmaster.errors.errors import HostError
from trainmaster.home.paths import Home
from trainmaster.plan.facts import HostFacts
from trainmaster.runs.planning.probe_nodes import NodesFacts, probe_nodes
from trainmaster.store.host_record import HostRecord
from trainmaster.sync.workspace import Workspace

# All of 127/8 is an interface's here: a host has several addresses.
FIRST, SECOND = "127.0.0.2", "127.0.0.3"
NAMES = ("gpu1", "gpu2", "gpu3")
FACTS = HostFacts(
    hostname="gpu",
    root="/nowhere",
    cores=2,
    memory_total_gib=8,
    memory_available_gib=8,
    disk_free_gib=8,
    python_version="3.11.2",
    torch=None,
)

Listening = defaultdict[int, asyncio.Event]


class Prober(NodeProber):
    """A host that has some addresses, and can't connect to others. Nothing is tried before a port
    of `listening` is open: which address comes first would be a matter of luck."""

    def __init__(self, own: Sequence[str], barred: Sequence[str], listening: Listening) -> None:
        self._own, self._barred, self._listening = own, barred, listening

    async def clock(self) -> float:
        return float(reach.addresses()["t"])

    async def addresses(self) -> Sequence[str]:
        return self._own

    async def listen(
        self, port: int, nonce: str, nodes: Sequence[str], within_s: float
    ) -> str | None:
        with socket.create_server(("", port), backlog=8) as listener:
            self._listening[port].set()
            await asyncio.to_thread(reach.hear, listener, nonce, nodes, within_s / 6)
        return None

    async def connect(
        self, node: str, addresses: Sequence[str], port: int, nonce: str, within_s: float
    ) -> Mapping[str, object]:
        allowed = [one for one in addresses if one not in self._barred]
        await self._listening[port].wait()
        asked = (node, allowed, port, nonce, within_s / 6)
        return await asyncio.to_thread(reach.connect, *asked)

    async def reach_others(
        self, own: Peer, others: Sequence[Peer], nonce: str, within_s: float
    ) -> Mapping[str, str] | str:
        found = await asyncio.to_thread(reach.reach_others, own, others, nonce, within_s)
        return found.get("unreached") or found["problem"] or {}

    async def deliver_nodes(self, run_id: str, given: NodesConfig) -> None:
        raise NotImplementedError

    async def end_member(self, run_id: str) -> bool:
        raise NotImplementedError

    async def given_nodes(self, run_id: str) -> NodesConfig | None:
        raise NotImplementedError


class Hosts(Workspace):
    """Three hosts, the first of which is known by `address`."""

    def __init__(self, home: Home, address: str, own: Sequence[str], **barred: Any) -> None:
        super().__init__(home)
        self.control.put_host(HostRecord("gpu1", address, port=1), 1.0)
        listening: Listening = defaultdict(asyncio.Event)
        self._probers = {name: Prober(own, barred.get(name, ()), listening) for name in NAMES}

    def backend(self, host: str) -> Any:
        return self._probers[host]

    def probed(self) -> NodesFacts:
        async def probe() -> NodesFacts:
            return await probe_nodes(self, NAMES, [FACTS] * len(NAMES))

        return run_async(probe)


@pytest.mark.parametrize(
    ("known_by", "own", "met_at"),
    [
        (SECOND, [FIRST, SECOND], SECOND),  # SSH's own interface
        ("gpu1.invalid", [FIRST, SECOND], FIRST),
        ("localhost", [], "127.0.0.1"),  # where a name or a translated address leads to
    ],
)
def test_a_first_host_is_met_at_an_address_of_its_own(
    home: Path, known_by: str, own: list[str], met_at: str
) -> None:
    workspace = Hosts(Home(home), known_by, own)
    assert workspace.probed().nodes[0].address == met_at
    workspace.close()


def test_hosts_that_reach_the_first_by_different_addresses_meet_at_one_that_all_reach(
    home: Path,
) -> None:
    workspace = Hosts(Home(home), FIRST, [FIRST, SECOND], gpu3=[FIRST])
    assert workspace.probed().nodes[0].address == SECOND
    workspace.close()


def test_a_first_host_without_an_address_of_ipv4_is_refused(home: Path) -> None:
    workspace = Hosts(Home(home), "2001:db8::1", [])
    with pytest.raises(HostError, match="gpu1 has no IPv4 address"):
        workspace.probed()
    workspace.close()


def test_hosts_without_an_address_in_common_are_refused(home: Path) -> None:
    workspace = Hosts(Home(home), FIRST, [FIRST, SECOND], gpu2=[SECOND], gpu3=[FIRST])
    with pytest.raises(HostError, match="gpu1 has no address that all others reach") as refused:
        workspace.probed()
    assert refused.value.code == "NODES_UNREACHABLE"
    workspace.close()
