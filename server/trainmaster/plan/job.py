"""What a run's jobs ask a scheduler for: time, memory, cores, GPUs; and what no partition gives."""

from __future__ import annotations

import math
from typing import Any

from trainer_runtime.core.lease.lease import DISK_BYTES_PER_S
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.duration import parse_duration
from trainer_runtime.core.protocol.figures import spoken_duration, spoken_hours
from trainmaster.errors.advice import job_option
from trainmaster.errors.errors import PlanError
from trainmaster.plan.config import Decided
from trainmaster.plan.decisions.hardware import CPUS_PER_GPU, cores_of_gpus, share_of_node
from trainmaster.plan.decisions.memory import GIB, checkpoint_bytes
from trainmaster.plan.decisions.target import Target
from trainmaster.plan.facts import HostFacts, SlurmFacts
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

_MINUTE_S = 60.0
_HOUR_S = 3600.0
# Of a partition without a limit: what other clusters commonly have.
_LONGEST_S = 7 * 24 * _HOUR_S
# An unknown training asks for a day at most: a scheduler starts short jobs sooner.
_UNKNOWN_S = 24 * _HOUR_S
_LEAST_S = _HOUR_S
_FACTOR, _PREPARATION_S = 1.25, 1800.0
# Kept free before the limit for what follows the training's end; less where jobs are very short.
_MARGIN_S, _MARGIN_SHARE = 60.0, 6.0
_UNKNOWN_MIB, _OVERHEAD_MIB = 2048, 2048
# A save's share of the shortest jobs: its time is an estimate, and a measured one replaces it.
_SAVE_SHARE = 4.0
# Of the margin, what a first save may take without time of its own.
_WITHIN_MARGIN_S = 20.0
# Slurm may send a signal up to a minute early: shorter jobs would be warned as they begin.
_SIGNALLED_MINUTES = 10
_MOST_SIGNAL_S = 65535


def plan_job(
    spec: TrainingSpec, facts: HostFacts, decided: Decided, hours: float | None, ledger: Ledger
) -> dict[str, Any] | None:
    """The section `slurm` of the config; None for other hosts. `hours`: the training's.

    Raises:
        PlanError: `PARTITION_TOO_SHORT`, `HOURS_USED_UP`.
    """
    slurm, target = facts.slurm, decided.target
    if slurm is None:
        return None
    _refuse_without_hours(facts.hostname, slurm, target)
    limit_minutes = _limit_minutes(slurm, hours, ledger)
    job = _job(slurm, target, limit_minutes, ledger, _save_s(spec, decided, limit_minutes))
    usable_s = job["limit_minutes"] * _MINUTE_S - job["margin_s"]
    _refuse_too_short(spec, slurm, usable_s, decided, facts.hostname)
    return {
        **job,
        "memory_mib": _memory_mib(slurm, decided, ledger),
        "cpus": _cpus(slurm, decided),
    }


def plan_program_job(facts: HostFacts, target: Target, ledger: Ledger) -> dict[str, Any] | None:
    """The same for a program, of which nothing is known: the share of a node that belongs to its
    GPUs, or to a few cores."""
    slurm = facts.slurm
    if slurm is None:
        return None
    _refuse_without_hours(facts.hostname, slurm, target)
    job = _job(slurm, target, _limit_minutes(slurm, None, ledger), ledger)
    if target.device == "cuda":
        cpus, share = cores_of_gpus(slurm, target.gpus), share_of_node(slurm, target.gpus)
        reason = "The share of a node that belongs to its GPUs."
    else:
        cpus = min(slurm.cpus, CPUS_PER_GPU * target.node_processes)
        share = cpus / max(1, slurm.cpus)
        reason = f"{CPUS_PER_GPU} cores a process at most, and their share of a node's memory."
    memory_mib = int(slurm.memory_mib * share) if slurm.memory_mib > 1 else None
    ledger.decide("slurm.cpus", cpus, reason)
    return {**job, "memory_mib": memory_mib, "cpus": cpus}


def _save_s(spec: TrainingSpec, decided: Decided, limit_minutes: int) -> float:
    """What a checkpoint takes to be written at most, until one was; 0 where its size is unknown."""
    per_parameter = checkpoint_bytes(spec, decided.network.architecture)
    size_bytes = (decided.fitted.trained or 0) * per_parameter
    return round(min(size_bytes / DISK_BYTES_PER_S, limit_minutes * _MINUTE_S / _SAVE_SHARE), 1)


def _job(
    slurm: SlurmFacts, target: Target, limit_minutes: int, ledger: Ledger, save_s: float = 0.0
) -> dict[str, Any]:
    """What does not depend on the training, but for the time that it takes to save."""
    warned_s = min(_MOST_SIGNAL_S, max(_MARGIN_S, _WITHIN_MARGIN_S + 2.0 * save_s))
    return {
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "constraint": slurm.constraint,
        "gres": _gres(slurm, target, ledger),
        "limit_minutes": limit_minutes,
        "margin_s": min(_MARGIN_S, limit_minutes * _MINUTE_S / _MARGIN_SHARE),
        "save_s": save_s,
        "signal_s": int(warned_s) if limit_minutes >= _SIGNALLED_MINUTES else None,
        **({"modules": slurm.modules.split(",")} if slurm.modules else {}),
    }


def _refuse_without_hours(host: str, slurm: SlurmFacts, target: Target) -> None:
    """Slurm would take such a job, and never begin it."""
    for whose, resource, minutes in slurm.used_up:
        if resource.startswith("gres/") and target.device != "cuda":
            continue
        raise PlanError(
            "HOURS_USED_UP",
            f"The {whose} has used up its {minutes / 60:g} hours of {resource}.",
            "Ask those who run the cluster for more, or have jobs charged to another: "
            f"{job_option(host, 'qos' if whose.startswith('QOS') else 'account', 'NAME')}.",
            field="host",
        )


def _limit_minutes(slurm: SlurmFacts, hours: float | None, ledger: Ledger) -> int:
    asked_s = None if slurm.time is None else parse_duration(slurm.time)
    allowed_s = min(slurm.limit_s or _LONGEST_S, asked_s or _LONGEST_S)
    wanted_s = _UNKNOWN_S if hours is None else _FACTOR * hours * _HOUR_S + _PREPARATION_S
    minutes = max(1, math.floor(min(allowed_s, max(_LEAST_S, wanted_s)) / _MINUTE_S))
    length = "a training of unknown length" if hours is None else f"{_length(hours)} of training"
    limit = "no limit" if slurm.limit_s is None else f"a limit of {spoken_duration(slurm.limit_s)}"
    limit += "" if asked_s is None else f", the host one of {spoken_duration(asked_s)}"
    ledger.decide(
        "slurm.limit_minutes",
        minutes,
        f"For {length}; partition {slurm.partition} has {limit}. What does not fit into one job "
        "continues in the next.",
    )
    return minutes


def _length(hours: float) -> str:
    return f"about {spoken_hours(hours)}"


def _refuse_too_short(
    spec: TrainingSpec, slurm: SlurmFacts, usable_s: float, decided: Decided, host: str
) -> None:
    """A job that ends before its first checkpoint would be repeated without progress; where the
    interval is in steps, the end of the job saves one, in the time that `save_s` sets aside."""
    every = decided.checkpoint_every
    interval_s = parse_duration(every) if isinstance(every, str) else 0.0
    if interval_s <= usable_s:
        return
    longer = ("time", "24h") if slurm.time else ("partition", "NAME")
    raise PlanError(
        "PARTITION_TOO_SHORT",
        f"Jobs of partition {slurm.partition} may train for {spoken_duration(usable_s)}, and a "
        f"checkpoint is due every {spoken_duration(interval_s)}.",
        f"Set checkpoint.every to less than {spoken_duration(usable_s)}, or change what jobs ask "
        f"for: {job_option(host, *longer)}; {command('hosts check', host)} lists the partitions "
        "there.",
        field="host" if spec.checkpoint.every == "auto" else "checkpoint.every",
    )


def _cpus(slurm: SlurmFacts, decided: Decided) -> int:
    target = decided.target
    if target.device == "cuda":
        return cores_of_gpus(slurm, target.gpus)
    return max(1, min(slurm.cpus, decided.threads * target.node_processes))


def _memory_mib(slurm: SlurmFacts, decided: Decided, ledger: Ledger) -> int | None:
    target, memory = decided.target, decided.fitted.memory
    if slurm.memory_mib <= 1:  # a cluster that doesn't count memory
        return None
    if target.device == "cuda":
        memory_mib = int(slurm.memory_mib * share_of_node(slurm, target.gpus))
        reason = "The share of the node's memory that belongs to its GPUs."
    else:
        if memory is None:
            wanted, of = _UNKNOWN_MIB, "2 GiB, as nothing was estimated"
        else:
            estimated = int(memory.total_gib * target.node_processes * GIB / 2**20)
            wanted, of = int(1.5 * estimated), f"1.5 times the estimate of {estimated} MiB"
        memory_mib = min(slurm.memory_mib, wanted + _OVERHEAD_MIB)
        cut = ": cut to all that a node has" if memory_mib < wanted + _OVERHEAD_MIB else ""
        reason = f"{of}, and 2 GiB for what else a job runs{cut}."
    ledger.decide("slurm.memory_mib", memory_mib, reason)
    return memory_mib


def _gres(slurm: SlurmFacts, target: Target, ledger: Ledger) -> str | None:
    """The host's own resources, and as many GPUs as the plan takes."""
    requested = slurm.gres.split(",") if slurm.gres else []
    others = [resource for resource in requested if resource.split(":")[0] != "gpu"]
    if target.device != "cuda":
        return ",".join(others) or None
    kind = next(
        (resource.split(":")[1:] for resource in requested if resource.split(":")[0] == "gpu"), []
    )
    named = [word for word in kind if not word.isdigit()][:1]
    if not named and slurm.gpu_type is not None:
        named = [slurm.gpu_type]
        ledger.decide(
            "slurm.gpu",
            slurm.gpu_type,
            f"Nodes of partition {slurm.partition} have GPUs of several types; this plan is for "
            "the one of which a node has the most. Another: `hosts add --gres gpu:TYPE`.",
        )
    return ",".join([*others, ":".join(["gpu", *named, str(target.gpus)])])
