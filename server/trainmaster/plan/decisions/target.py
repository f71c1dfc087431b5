"""What a training computes on."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.environment.gpus import Gpu

# What a process may count on of a GPU's memory that is free now.
GPU_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class Target:
    """What computes. `name` is `cpu` or the GPU's; `gpu` its row of the table, None if unknown.

    `gpus` of them work together on each of `nodes` machines, one for each of the `processes`, of
    which all nodes together have that many; each has `memory_gib`.
    `indexes` are the host's numbers for them. `on_host` is false for what is only planned for.
    """

    device: str
    name: str
    memory_gib: float
    precision: str
    gpu: Gpu | None = None
    indexes: tuple[int, ...] = ()
    on_host: bool = True
    gpus: int = 0
    processes: int = 1
    nodes: int = 1

    @property
    def node_processes(self) -> int:
        """How many processes each node has."""
        return self.processes // self.nodes
