"""The nodes of a run on several hosts: what each of them is given with the run, and per attempt.

Node 0 has the supervisor. Every other node has a member of it, in a folder of the same run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.decoding import Fields, JsonRecord

# In the run's folder, its owner's alone: it holds the run's secret.
NODES = ".nodes.json"
# In an attempt's folder on node 0: what it found out about the other nodes' part in its end.
NODES_END = "nodes_end.json"
SILENT_S = 20.0
# Where node 0 listens: below the ports that systems give out by themselves.
FIRST_PORT, LAST_PORT = 20_000, 31_999
# Another program may have taken a port since it was chosen: how many there are, and how far apart.
_PORTS, _APART = 4, 997


@dataclass(frozen=True, slots=True)
class Node(JsonRecord):
    """One host of a run. `address`: where the other nodes reach it, as an IP address."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class NodesConfig(JsonRecord):
    """What a node is given: its own number, all nodes in order, and how to reach node 0.

    `port`: where node 0's supervisor listens, or at another one of `ports`. `secret`: shared by the
    run's nodes, in hexadecimal. `silent_s`: after so long a silence a node is taken for lost.
    `shared`: the nodes' folders lie in node 0's, on a disk that all of them see, so that nothing
    has to be fetched.
    """

    rank: int
    port: int
    secret: str
    nodes: tuple[Node, ...]
    silent_s: float = SILENT_S
    shared: bool = False

    @classmethod
    def of(cls, fields: Fields) -> NodesConfig:
        """Raises: ValueError: a field is missing, or has another type."""
        config = super(NodesConfig, cls).of(fields)
        if not 0 <= config.rank < len(config.nodes):
            raise fields.error("rank", "is not the number of a node")
        return config

    def to_dict(self) -> dict[str, Any]:
        return {"v": 1, **super(NodesConfig, self).to_dict()}

    @property
    def ports(self) -> tuple[int, ...]:
        """Node 0 listens on the first that is free; the others try them in turn."""
        size = LAST_PORT - FIRST_PORT + 1
        others = (self.port - FIRST_PORT + _APART * index for index in range(1, _PORTS))
        return (self.port, *(FIRST_PORT + other % size for other in others))

    @property
    def is_member(self) -> bool:
        """Whether another node has the supervisor."""
        return self.rank > 0

    @property
    def own(self) -> Node:
        return self.nodes[self.rank]


def moved(document: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """A configuration whose paths below the cache `old` lead below `new`."""

    def value_of(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: value_of(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [value_of(item) for item in value]
        if isinstance(value, str) and old and (value == old or value.startswith(f"{old}/")):
            return new + value[len(old) :]
        return value

    return {name: value_of(value) for name, value in document.items()}
