"""What a plan needs of a machine, in the units that engines ask for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.plan.decisions.hardware import CPUS_PER_GPU
from trainmaster.plan.decisions.memory import GIB
from trainmaster.plan.result import Decision, Plan
from trainmaster.plan.spec import SHM_SIZE

# Weights, gradients and Adam's two moments in mixed precision (Rajbhandari et al. 2020, ZeRO,
# section 3.1): as much passes through the host's memory while a checkpoint is read or written.
_BYTES_PER_PARAMETER = 16
# A Python process with PyTorch and CUDA, and its readers of data.
_GIB_PER_PROCESS = 8
# An estimate is off by so much at most in most runs; a limit too low loses the run's end.
_TIME_MARGIN = 1.5
_THREADS = "compute.threads"


@dataclass(frozen=True, slots=True)
class Needs:
    """`gpu`: the name in our table, None for any. `memory_gib` and `limit_s` are None where
    nothing is known: engines then take their own default. `shared`: the size of `/dev/shm`, as in
    `16g`. Of each of `nodes` machines."""

    nodes: int
    gpus: int
    gpu: str | None
    cpus: int
    memory_gib: int | None
    shared: str
    disk_gib: int
    limit_s: float | None
    secrets: tuple[str, ...]


def without_job(plan: Plan) -> Plan:
    """The plan without what the jobs of a cluster of ours ask for: what takes the file asks."""
    config = {name: value for name, value in plan.config.items() if name != "slurm"}
    return plan.model_copy(update={"config": config})


def for_another_machine(plan: Plan) -> Plan:
    """The plan with threads for the cores that engines are asked for, where it was made for GPUs of
    a host here and the spec leaves the threads open."""
    compute = plan.config["compute"]
    is_open = any(decision.field == _THREADS for decision in plan.decisions)
    if not compute["gpus"] or not is_open:
        return plan
    threads = CPUS_PER_GPU  # of one process, since each GPU has one
    reason = f"The engine is asked for {CPUS_PER_GPU} cores per GPU."
    decided = Decision(field=_THREADS, value=threads, reason=reason)
    decisions = tuple(
        decided if decision.field == _THREADS else decision for decision in plan.decisions
    )
    config = {**plan.config, "compute": {**compute, "threads": threads}}
    return plan.model_copy(update={"config": config, "decisions": decisions})


def needs(plan: Plan, job: Mapping[str, Any] | None = None) -> Needs:
    """Of each machine that `plan` is for; `job`: as `engine_file`."""
    compute = plan.config["compute"]
    gpus, nodes = int(compute["gpus"]), int(compute.get("nodes") or 1)
    ranks = int(compute.get("processes") or max(1, gpus) * nodes) // nodes
    return Needs(
        nodes=nodes,
        gpus=gpus,
        gpu=compute.get("gpu"),
        cpus=max(gpus * CPUS_PER_GPU, ranks * (compute.get("threads") or CPUS_PER_GPU)),
        memory_gib=_memory_gib(plan, ranks, on_gpu=gpus > 0),
        shared=compute.get("shm_size", SHM_SIZE),
        disk_gib=math.ceil(plan.estimates.disk_gib or 0),
        limit_s=_limit_s(plan) if job is None else _limit_of_job(plan, job),
        secrets=tuple(plan.config["secrets"]),
    )


def _memory_gib(plan: Plan, ranks: int, *, on_gpu: bool) -> int | None:
    parameters, used = plan.estimates.parameters, plan.estimates.memory_gib
    if parameters is None or used is None:
        return None
    state = parameters * _BYTES_PER_PARAMETER / GIB
    return math.ceil((state if on_gpu else max(state, used * ranks)) + ranks * _GIB_PER_PROCESS)


def _limit_of_job(plan: Plan, job: Mapping[str, Any]) -> float:
    limit: float | None = plan.config["limits"]["max_runtime_s"]
    longest = float(job["limit_minutes"]) * 60
    return longest if limit is None else min(limit, longest)


def _limit_s(plan: Plan) -> float | None:
    """The spec's limit, or less where the training is expected to end long before it."""
    limit: float | None = plan.config["limits"]["max_runtime_s"]
    hours = plan.estimates.hours
    if hours is None:
        return limit
    longest = max(hours, *plan.estimates.ranges.get("hours", (hours, hours)))
    expected = math.ceil(longest * _TIME_MARGIN) * 3600.0
    return expected if limit is None else min(limit, expected)
