"""What nodes are asked so that each of them tries to reach every other one, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainer_runtime.core.decoding import JsonRecord

# Of those that Linux gives out by itself, as to torchrun, gloo and NCCL.
FIRST_EPHEMERAL, LAST_EPHEMERAL = 32_768, 60_999
_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class Peer(JsonRecord):
    """A node that listens, at `port` of `address`, to be reached by all others."""

    name: str
    address: str
    port: int


def unreached_in_words(unreached: Mapping[str, Mapping[str, str]]) -> str | None:
    """Which node can't connect to which, and why; None where all can. `unreached`: by the name of
    each node those that it can't connect to, with the reasons."""
    each = [
        f"{name} can't connect to {other} ({reason})"
        for name, others in unreached.items()
        for other, reason in others.items()
    ]
    more = len(each) - _MOST_NAMED
    return "; ".join([*each[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])]) or None
