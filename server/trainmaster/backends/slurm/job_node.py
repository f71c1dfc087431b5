"""The node that a job gets: one that a partition really has, by the options of the host. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainer_runtime.core.answers.slurm import NodeKind, PartitionAnswer
from trainer_runtime.core.environment.gpus import find_gpu
from trainmaster.errors.advice import job_option
from trainmaster.errors.errors import HostError
from trainmaster.store.host_record import HostRecord

# A constraint of features that a node must all have; others are for Slurm to read.
_ALL_OF = re.compile(r"[A-Za-z0-9_.,&-]+")
_AND = re.compile("[,&]")
_MOST_NAMED = 20
_MEANT = {"constraint": "FEATURES", "gres": "gpu:TYPE"}


@dataclass(frozen=True, slots=True)
class JobNode:
    """`gpus` of the type `gpu`, None where Slurm names none. `is_one_of_several`: other nodes that
    the job may get have another type. `nodes`: how many it may get, `gpu_nodes` of them with the
    type."""

    cpus: int
    memory_mib: int
    gpus: int
    gpu: str | None
    is_one_of_several: bool
    nodes: int
    gpu_nodes: int = 0


def node_for(options: HostRecord, partition: PartitionAnswer) -> JobNode:
    """Of the nodes that have the host's features and its type of GPU, one of those with the most
    GPUs; of these, one of the most frequent kind.

    Raises:
        HostError: `JOB_REFUSED`, there is none.
    """
    wanted = _features(options.constraint)
    kinds = [kind for kind in partition.kinds if wanted <= set(kind.features)]
    if not kinds:
        there = {word for kind in partition.kinds for word in kind.features}
        raise _refused(
            options,
            f"No node of partition {partition.name} has the features "
            f"{' and '.join(map(repr, sorted(wanted)))}; features there: {_listed(there)}.",
            "constraint",
            there,
        )
    kind_of_gpu = gpu_type(options.gres)
    if kind_of_gpu is not None and not any(kind_of_gpu in kind.gpus for kind in kinds):
        also = f" with {options.constraint}" if options.constraint else ""
        there = {name for kind in kinds for name in kind.gpus}
        raise _refused(
            options,
            f"No node of partition {partition.name}{also} has GPUs of the type {kind_of_gpu!r}; "
            f"types there: {_listed(there)}.",
            "gres",
            there,
        )
    return _chosen(kinds, kind_of_gpu)


def gpu_type(gres: str | None) -> str | None:
    """The type of GPU that a host was added with, as in `gpu:a100`."""
    for resource in (gres or "").split(","):
        name, _, kind = resource.partition(":")
        if name == "gpu" and kind:
            return kind
    return None


def _chosen(kinds: Sequence[NodeKind], kind_of_gpu: str | None) -> JobNode:
    offers = [
        (count, _memory_gib(name), kind.nodes, name, kind)
        for kind in kinds
        for name, count in kind.gpus.items()
        if kind_of_gpu in (None, name)
    ]
    nodes = sum(kind.nodes for kind in kinds)
    if not offers:
        largest = max(kinds, key=lambda kind: (kind.memory_mib, kind.cpus))
        return JobNode(largest.cpus, largest.memory_mib, 0, None, False, nodes)
    count, _, _, name, kind = max(offers, key=lambda offer: offer[:4])
    return JobNode(
        cpus=kind.cpus,
        memory_mib=kind.memory_mib,
        gpus=count,
        gpu=name or None,
        is_one_of_several=len({offer[3] for offer in offers} - {""}) > 1,
        nodes=nodes,
        gpu_nodes=sum(node_kind.nodes for node_kind in kinds if name in node_kind.gpus),
    )


def _memory_gib(name: str) -> float:
    gpu_model = find_gpu(name)
    return 0.0 if gpu_model is None else gpu_model.memory_gib


def _features(constraint: str | None) -> set[str]:
    if constraint is None or not _ALL_OF.fullmatch(constraint):
        return set()
    return {word for word in _AND.split(constraint) if word}


def _listed(words: set[str]) -> str:
    return ", ".join(sorted(words - {""})[:_MOST_NAMED]) or "none"


def _refused(options: HostRecord, message: str, option: str, there: set[str]) -> HostError:
    meant = _MEANT[option] if there - {""} else None
    fix = f"Change it: {job_option(options.name, option, meant)}."
    return HostError("JOB_REFUSED", message, fix, field="host")
