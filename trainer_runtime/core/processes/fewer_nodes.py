"""Which of a run's nodes take part in an attempt, and in what pieces they share its steps. Pure.

Where a lost node was waited for in vain, `compute.min_nodes` allows to continue without it. A step
keeps its sequences, so that only some numbers of nodes are possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.processes.resharding import strategy_on


@dataclass(frozen=True, slots=True)
class Step:
    """What all ranks together do in an optimizer step: `sequences`, in micro-batches of at most
    `micro_batch`, or of just that where `is_fixed`; each node has `node_ranks`."""

    sequences: int
    micro_batch: int
    node_ranks: int
    is_fixed: bool = False

    @classmethod
    def of(cls, config: RunConfig, sets: Mapping[str, Any], all_nodes: int) -> Step:
        """The step of a configuration that `sets` changes, for all nodes alike."""
        compute, batch = config.compute, config.batch
        planned = config.derived.sequences_per_step
        own = batch.micro_batch * batch.accumulation * compute.processes
        ranks = compute.processes // compute.nodes
        asked = sets.get("compute.processes")  # of all nodes
        return cls(
            sequences=int(sets.get("derived.sequences_per_step") or planned or own),
            micro_batch=int(sets.get("batch.micro_batch") or batch.micro_batch),
            node_ranks=ranks if asked is None else int(asked) // all_nodes,
            is_fixed=compares_examples(config.method),
        )

    def divides_among(self, nodes: int) -> bool:
        """Whether so many nodes can share the step evenly."""
        unit = self.micro_batch if self.is_fixed else 1
        return self.sequences % (nodes * self.node_ranks * unit) == 0


def compares_examples(method: str) -> bool:
    """Whether a method compares the examples of a micro-batch, so that its size has a meaning."""
    return method == "kto"


def possible_counts(step: Step, least: int, most: int) -> list[int]:
    """The numbers of nodes from `least` to `most` that can share a step evenly."""
    return [count for count in range(least, most + 1) if step.divides_among(count)]


def chosen_nodes(step: Step, available: Sequence[int], all_nodes: int, least: int) -> list[int]:
    """The numbers of the nodes that take part: as many of the `available` as can share a step, the
    first ones; all of the run's where these are too few, so that the others are waited for."""
    counts = possible_counts(step, least, len(available))
    if len(available) == all_nodes or not counts:
        return list(range(all_nodes))
    return list(available[: counts[-1]])


def resized(
    config: RunConfig, sets: Mapping[str, Any], nodes: Iterable[int], all_nodes: int
) -> dict[str, Any]:
    """The changes by which an attempt after one with this configuration runs on these nodes;
    `sets`: its other changes. Empty where all nodes take part in both."""
    taking_part = list(nodes)
    step = Step.of(config, sets, all_nodes)
    if len(taking_part) == config.compute.nodes == all_nodes or not step.sequences:
        return {}
    ranks = len(taking_part) * step.node_ranks
    share = step.sequences // ranks
    micro_batch = max(size for size in range(1, step.micro_batch + 1) if share % size == 0)
    return {
        "compute.nodes": len(taking_part),
        "compute.taking_part": taking_part,
        "compute.processes": ranks,
        "compute.strategy": strategy_on(config.compute.strategy, ranks),
        "batch.micro_batch": micro_batch,
        "batch.accumulation": share // micro_batch,
    }
