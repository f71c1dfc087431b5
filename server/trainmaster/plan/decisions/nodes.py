"""On how many machines a training runs: the hosts that the spec lists, or nodes of one job."""

from __future__ import annotations

from dataclasses import replace

from trainer_runtime.core.protocol.command import command
from trainmaster.errors.errors import PlanError
from trainmaster.plan.decisions.target import Target
from trainmaster.plan.facts import HostFacts, SlurmFacts
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

_FIELD = "compute.nodes"


def with_nodes(spec: TrainingSpec, facts: HostFacts, target: Target, ledger: Ledger) -> Target:
    """The same target on each of the training's machines.

    Raises:
        PlanError: `INVALID_VALUE`, the host is a single machine, or a cluster among several hosts;
            `PARTITION_TOO_SMALL`.
    """
    nodes = _count(spec, facts, target)
    if nodes == 1:
        return target
    processes = nodes * target.processes
    where = f"{nodes} hosts" if spec.other_hosts else f"{nodes} nodes of each job"
    ledger.decide("compute.processes", processes, f"{target.processes} on each of {where}.")
    return replace(target, processes=processes, nodes=nodes)


def in_a_list(host: str) -> PlanError:
    """What refuses a cluster among several hosts."""
    return PlanError(
        "INVALID_VALUE",
        f"`host` lists {host} among several, which is a cluster and not a single machine.",
        f"Name it alone (`host: {host}`), and say by {_FIELD} how many of its nodes take part.",
        field="host",
    )


def _count(spec: TrainingSpec, facts: HostFacts, target: Target) -> int:
    slurm, wanted = facts.slurm, spec.compute.nodes
    if spec.other_hosts:
        if slurm is not None:
            raise in_a_list(facts.hostname)
        return 1 + len(spec.other_hosts)
    if wanted > facts.alike and slurm is None:
        raise PlanError(
            "INVALID_VALUE",
            f"`{_FIELD}` is {wanted}, but {facts.hostname} is a single machine.",
            f"List machines with SSH (`host: [gpu1, gpu2]`) and leave {_FIELD} out, or name a host "
            "whose launcher is slurm.",
            field=_FIELD,
        )
    if wanted > 1 and slurm is not None:
        _refuse_too_many(wanted, facts.hostname, slurm, has_gpus=target.device == "cuda")
    return wanted


def _refuse_too_many(wanted: int, host: str, slurm: SlurmFacts, *, has_gpus: bool) -> None:
    most, why = slurm.nodes, f"has {slurm.nodes}"
    if has_gpus and slurm.gpu_nodes is not None and slurm.gpu_nodes < most:
        most, why = slurm.gpu_nodes, f"has {slurm.gpu_nodes} with such GPUs"
    if slurm.max_nodes is not None and slurm.max_nodes < most:
        most, why = slurm.max_nodes, f"gives a job at most {slurm.max_nodes}"
    if wanted > most:
        raise PlanError(
            "PARTITION_TOO_SMALL",
            f"`{_FIELD}` is {wanted}, but partition {slurm.partition} {why}.",
            f"Set {_FIELD} to at most {most}, or take another partition: "
            f"{command('hosts set', host, '--partition', 'NAME')}.",
            field=_FIELD,
        )
