"""Probes the hosts of a training on several: alike, in step, and within reach of one another."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer_runtime.core.processes.nodes import FIRST_PORT, LAST_PORT
from trainer_runtime.core.processes.reaching import (
    FIRST_EPHEMERAL,
    LAST_EPHEMERAL,
    Peer,
    unreached_in_words,
)
from trainer_runtime.core.protocol.figures import spoken_duration
from trainmaster.backends import NodeProber
from trainmaster.errors.errors import HostError
from trainmaster.plan import HostFacts
from trainmaster.sync.workspace import Workspace

_WITHIN_S = 12.0
_LONGEST_SKEW_S = 5.0
_PORTS_TRIED = 3
_CHOSEN = secrets.SystemRandom()


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One host of a training: where the others reach it, and its folder of shared files."""

    name: str
    address: str
    cache: str


@dataclass(frozen=True, slots=True)
class NodesFacts:
    """All hosts of a training, in order; `port`: where the first one's supervisor will listen."""

    nodes: tuple[NodeFacts, ...]
    port: int

    def to_dict(self) -> dict[str, object]:
        """As the run's configuration has them."""
        each = [
            {"name": node.name, "address": node.address, "cache": node.cache} for node in self.nodes
        ]
        return {"port": self.port, "hosts": each}


async def probe_nodes(
    workspace: Workspace, hosts: Sequence[str], facts: Sequence[HostFacts]
) -> NodesFacts:
    """Check that these hosts can train together; `facts`: of each, in the same order.

    Raises:
        HostError: `NODES_DIFFER`, `NODES_UNREACHABLE`, `UNSUPPORTED`; or a host can't be reached
            from here.
    """
    _refuse_rented(workspace, hosts)
    first = facts[0]
    for other in facts[1:]:
        _refuse_unlike(first, other)
    probers = [NodeProber.of(workspace.backend(host), field="host") for host in hosts]
    await _refuse_skewed(hosts, probers)
    candidates = await _candidates(workspace, hosts[0], probers[0])
    port, reached = await _reach(hosts, probers, candidates)
    if len(_addresses_of_first(reached)) > 1:
        port, reached = await _reach_by_one(hosts, probers, candidates)
    (address,) = _addresses_of_first(reached)
    nodes = [NodeFacts(hosts[0], address, first.cache_folder)]
    for host, host_facts in zip(hosts[1:], facts[1:], strict=True):
        nodes.append(NodeFacts(host, str(reached[host]["own"]), host_facts.cache_folder))
    await _reach_all(nodes, probers)
    return NodesFacts(tuple(nodes), port)


async def _candidates(workspace: Workspace, host: str, prober: NodeProber) -> Sequence[str]:
    """The addresses by which the others may reach a host: that of its SSH first where it is an
    interface's, last where it is a name or translated.

    Raises:
        HostError: `NODES_UNREACHABLE`, it has no IPv4 address.
    """
    own = await prober.addresses()
    record = workspace.control.host(host)
    named = [] if record is None or ":" in record.address else [record.address]
    if not own and not named:
        raise HostError(
            "NODES_UNREACHABLE",
            f"{host} has no IPv4 address, by which alone several hosts meet.",
            "Give it one in a network of the other hosts, or train on one host.",
            field="host",
        )
    return list(dict.fromkeys([*(address for address in named if address in own), *own, *named]))


def _refuse_rented(workspace: Workspace, hosts: Sequence[str]) -> None:
    """Raises:
    HostError: `UNSUPPORTED`, costs and leases are those of a single host.
    """
    for host in hosts:
        if workspace.control.instances.by_host(host) is not None:
            raise HostError(
                "UNSUPPORTED",
                f"{host} is rented, and its costs and lease are not kept over several hosts yet.",
                "Rent one instance with more GPUs, or list hosts of your own.",
                field="host",
            )


def _refuse_unlike(first: HostFacts, other: HostFacts) -> None:
    """Raises:
    HostError: `NODES_DIFFER`.
    """
    differing = [
        ("PyTorch", _torch(first), _torch(other), "Install the same version on both"),
        ("GPUs", _gpus(first), _gpus(other), "Name hosts with the same GPUs"),
        (
            "Python",
            first.python_version.rpartition(".")[0],
            other.python_version.rpartition(".")[0],
            "Name by `environment: {python: PATH}` an interpreter that both have",
        ),
    ]
    for what, own, others, fix in differing:
        if own != others:
            raise HostError(
                "NODES_DIFFER",
                f"{what} of {first.hostname} and {other.hostname} differ: {own}, and {others}.",
                f"{fix}, or train on one host.",
                field="host",
            )


def _torch(facts: HostFacts) -> str:
    return "none" if facts.torch is None else facts.torch.version


def _gpus(facts: HostFacts) -> str:
    names = sorted(gpu.name for gpu in facts.gpus)
    return ", ".join(names) or "none"


async def _refuse_skewed(hosts: Sequence[str], probers: Sequence[NodeProber]) -> None:
    """Raises:
    HostError: `NODES_DIFFER`, their clocks are too far apart.
    """

    async def ahead_s(prober: NodeProber) -> tuple[float, float]:
        begun_t = time.time()
        there_t = await prober.clock()
        taken_s = time.time() - begun_t
        return there_t - begun_t - taken_s / 2, taken_s / 2

    skews = await asyncio.gather(*map(ahead_s, probers))
    (first_s, first_error_s), *others = skews
    for host, (other_s, error_s) in zip(hosts[1:], others, strict=True):
        skew_s = abs(other_s - first_s)
        if skew_s - error_s - first_error_s > _LONGEST_SKEW_S:
            raise HostError(
                "NODES_DIFFER",
                f"The clocks of {hosts[0]} and {host} are {spoken_duration(skew_s)} apart.",
                "Have both set their clocks by NTP (`timedatectl set-ntp true`).",
                field="host",
            )


async def _reach(
    hosts: Sequence[str],
    probers: Sequence[NodeProber],
    candidates: Sequence[str],
    within_s: float = _WITHIN_S,
) -> tuple[int, Mapping[str, Mapping[str, object]]]:
    """The port, and what each of the other hosts has reached.

    Raises:
        HostError: `NODES_UNREACHABLE`.
    """
    problem = ""
    for _ in range(_PORTS_TRIED):
        port = FIRST_PORT + secrets.randbelow(LAST_PORT - FIRST_PORT + 1)
        nonce = secrets.token_hex(16)
        connecting = [
            prober.connect(host, candidates, port, nonce, within_s)
            for host, prober in zip(hosts[1:], probers[1:], strict=True)
        ]
        refusal, answers = await asyncio.gather(
            probers[0].listen(port, nonce, hosts[1:], within_s), asyncio.gather(*connecting)
        )
        if refusal is not None:
            problem = refusal
            continue  # the port is somebody's
        reached = dict(zip(hosts[1:], answers, strict=True))
        for host, answer in reached.items():
            _refuse_unreached(hosts[0], host, port, answer)
        return port, reached
    raise _unreachable(f"{hosts[0]} can't be listened on: {problem}")


def _refuse_unreached(first: str, host: str, port: int, answer: Mapping[str, object]) -> None:
    if answer["address"] is None:
        tried = answer["tried"]
        each = tried.items() if isinstance(tried, Mapping) else ()
        reasons = "; ".join(f"{address}: {reason}" for address, reason in each)
        raise _unreachable(f"{host} can't connect to {first} on port {port} ({reasons})")


def _unreachable(what: str) -> HostError:
    return HostError(
        "NODES_UNREACHABLE",
        f"{what}.",
        "Let TCP over IPv4 through between the hosts on all ports (firewall, security group), or "
        "name hosts of one network.",
        retryable=True,
        field="host",
    )


async def _reach_by_one(
    hosts: Sequence[str], probers: Sequence[NodeProber], candidates: Sequence[str]
) -> tuple[int, Mapping[str, Mapping[str, object]]]:
    """As `_reach`, by an address of the first host that all others reach.

    Raises:
        HostError: `NODES_UNREACHABLE`, there is none.
    """
    for address in candidates:
        try:
            return await _reach(hosts, probers, [address], _WITHIN_S / 2)
        except HostError as error:
            if error.code != "NODES_UNREACHABLE":
                raise
    raise _unreachable(f"{hosts[0]} has no address that all others reach")


async def _reach_all(nodes: Sequence[NodeFacts], probers: Sequence[NodeProber]) -> None:
    """Have every host connect to every other one, by ports such as their ranks are given.

    Raises:
        HostError: `NODES_UNREACHABLE`, with each pair that can't connect.
    """
    problem = ""
    for _ in range(_PORTS_TRIED):
        nonce = secrets.token_hex(16)
        ports = _CHOSEN.sample(range(FIRST_EPHEMERAL, LAST_EPHEMERAL + 1), len(nodes))
        peers = [
            Peer(node.name, node.address, port) for node, port in zip(nodes, ports, strict=True)
        ]
        reaching = [
            prober.reach_others(own, [peer for peer in peers if peer != own], nonce, _WITHIN_S)
            for own, prober in zip(peers, probers, strict=True)
        ]
        unreached = {}
        for node, outcome in zip(nodes, await asyncio.gather(*reaching), strict=True):
            if isinstance(outcome, str):
                problem = f"{node.name} can't be listened on: {outcome}"
            else:
                unreached[node.name] = outcome
        if len(unreached) < len(nodes):
            continue  # a port is somebody's
        what = unreached_in_words(unreached)
        if what is not None:
            raise _unreachable(what)
        return
    raise _unreachable(problem)


def _addresses_of_first(reached: Mapping[str, Mapping[str, object]]) -> set[str]:
    return {str(answer["address"]) for answer in reached.values()}
