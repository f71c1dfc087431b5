"""How the ranks of an attempt on several hosts meet: `rendezvous.json` in the attempt's folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainer_runtime.core.decoding import JsonRecord

RENDEZVOUS = "rendezvous.json"
# The environment variables of a node of a training without a supervisor.
_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK")


@dataclass(frozen=True, slots=True)
class Rendezvous(JsonRecord):
    """How the ranks of one attempt meet: at `port` of node 0's `address`.

    `node`: this node's number, of `nodes`; `interface`: the network interface that its ranks use,
    None: whichever the library chooses.
    """

    id: str
    address: str
    port: int
    node: int
    nodes: int
    interface: str | None = None

    @classmethod
    def of_variables(cls, nodes: int, variables: Mapping[str, str]) -> Rendezvous | None:
        """By the environment, in torchrun's own words; None for a single node.

        Raises:
            ValueError: a variable is missing, or not a number.
        """
        if nodes < 2:
            return None
        missing = [name for name in _VARIABLES if name not in variables]
        if missing:
            raise ValueError(f"compute.nodes is {nodes}: {', '.join(missing)} is not set")
        address, port, node = (variables[name] for name in _VARIABLES)
        return cls("train.sh", address, int(port), int(node), nodes)
