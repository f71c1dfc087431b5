"""Calls by which hosts try to reach one another; see `trainer_runtime.host.answer.reach`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.protocol.command import command
from trainmaster.backends.hosts.host import Host
from trainmaster.backends.hosts.runtime_call import Failure, RuntimeCall, runtime_call

_TIMEOUT_S = 45.0


async def clock(host: Host) -> float:
    """The host's Unix time, in seconds."""
    return await runtime_call(host, _call(host, "addresses", {}), lambda answer: answer.time("t"))


async def addresses(host: Host) -> Sequence[str]:
    """The host's IPv4 addresses."""
    call = _call(host, "addresses", {})
    return await runtime_call(host, call, lambda answer: answer.texts("addresses"))


async def listen(host: Host, asked: Mapping[str, object]) -> str | None:
    """Wait for other nodes; why that can't be."""
    call = _call(host, "listen", asked)
    return await runtime_call(host, call, lambda answer: answer.find_text("problem"))


async def connect(host: Host, asked: Mapping[str, object]) -> Mapping[str, object]:
    """Connect to the first node; what came of it."""
    return await runtime_call(host, _call(host, "connect", asked), _reached)


async def reach_others(host: Host, asked: Mapping[str, object]) -> Mapping[str, str] | str:
    """Connect to all others, which connect to this one; those that can't be, or why none can."""
    return await runtime_call(host, _call(host, "others", asked), _unreached)


def _reached(answer: Fields) -> Mapping[str, object]:
    return {
        "address": answer.find_text("address"),
        "own": answer.find_text("own"),
        "tried": answer.text_map("tried"),
    }


def _unreached(answer: Fields) -> Mapping[str, str] | str:
    problem = answer.find_text("problem")
    return answer.text_map("unreached") if problem is None else problem


def _call(host: Host, how: str, asked: Mapping[str, object]) -> RuntimeCall:
    failure = Failure(
        f"{host.name} could not try its connections to other hosts",
        f"{command('hosts check', host.name)} finds the cause.",
        code="NODES_UNREACHABLE",
    )
    return RuntimeCall("reach", [how], failure, _TIMEOUT_S, stdin=json.dumps(asked).encode())
