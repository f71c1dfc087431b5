"""Calls by which hosts try to reach one another; see `trainer_runtime.host.answer.reach`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.processes.reaching import Peer
from trainer_runtime.core.protocol.command import command
from trainmaster.backends.capabilities import NodeProber
from trainmaster.backends.hosts.host import Host
from trainmaster.backends.hosts.runtime_call import Failure, Parsed, RuntimeCall, runtime_call

_TIMEOUT_S = 45.0


class HostedNode(NodeProber):
    """`_host` as a node."""

    _host: Host

    async def clock(self) -> float:
        return await self._reach("addresses", {}, lambda answer: answer.time("t"))

    async def addresses(self) -> Sequence[str]:
        return await self._reach("addresses", {}, lambda answer: answer.texts("addresses"))

    async def listen(
        self, port: int, nonce: str, nodes: Sequence[str], within_s: float
    ) -> str | None:
        request = {"port": port, "nonce": nonce, "nodes": list(nodes), "within_s": within_s}
        return await self._reach("listen", request, lambda answer: answer.find_text("problem"))

    async def connect(
        self, node: str, addresses: Sequence[str], port: int, nonce: str, within_s: float
    ) -> Mapping[str, object]:
        request = {"port": port, "nonce": nonce, "node": node, "within_s": within_s}
        return await self._reach("connect", {**request, "addresses": list(addresses)}, _reached)

    async def reach_others(
        self, own: Peer, others: Sequence[Peer], nonce: str, within_s: float
    ) -> Mapping[str, str] | str:
        peers = [peer.to_dict() for peer in others]
        request = {"own": own.to_dict(), "others": peers, "nonce": nonce, "within_s": within_s}
        return await self._reach("others", request, _unreached)

    async def _reach(
        self, how: str, request: Mapping[str, object], parse: Callable[[Fields], Parsed]
    ) -> Parsed:
        failure = Failure(
            f"{self._host.name} could not try its connections to other hosts",
            f"{command('hosts check', self._host.name)} finds the cause.",
            code="NODES_UNREACHABLE",
        )
        stdin = json.dumps(request).encode()
        call = RuntimeCall("reach", [how], failure, _TIMEOUT_S, stdin=stdin)
        return await runtime_call(self._host, call, parse)


def _reached(answer: Fields) -> Mapping[str, object]:
    return {
        "address": answer.find_text("address"),
        "own": answer.find_text("own"),
        "tried": answer.text_map("tried"),
    }


def _unreached(answer: Fields) -> Mapping[str, str] | str:
    problem = answer.find_text("problem")
    return answer.text_map("unreached") if problem is None else problem
