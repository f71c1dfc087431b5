"""Which partition a host's jobs go to, and the machine that they find there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainer_runtime.core.answers.slurm import ClusterAnswer, PartitionAnswer, UsedUp
from trainer_runtime.core.environment.gpus import find_gpu
from trainer_runtime.core.protocol.command import command, option
from trainmaster.backends.hosts import Host
from trainmaster.backends.hosts.runtime_call import Failure, RuntimeCall, runtime_call
from trainmaster.backends.slurm.job_node import JobNode, node_for
from trainmaster.errors.advice import job_option
from trainmaster.errors.errors import HostError
from trainmaster.store.host_record import SLURM_OPTIONS, HostRecord

if TYPE_CHECKING:
    from trainmaster.plan.facts import GpuFacts, HostFacts

_TIMEOUT_S = 60.0
# Of a GPU that Slurm has no name for, or one that no table knows.
_UNKNOWN_GIB = 16.0
_FIRST_BF16, _BEFORE_BF16 = 8.0, 7.0


async def read_cluster(host: Host, options: HostRecord, *, whole: bool = False) -> ClusterAnswer:
    """The cluster of a login node, and what the account of the host's jobs has used up. `whole`:
    with the modules that there are, the user's quota and accounts.

    Raises:
        HostError: `SLURM_MISSING`, `SLURM_UNREACHABLE`, `SLURM_FAILED`.
    """
    failure = Failure(
        f"The cluster of {host.name} could not be read",
        "Run `sinfo` on the login node by hand.",
        code="SLURM_FAILED",
    )
    modules = options.modules.split(",") if options.modules and whole else []
    words = [word for name in modules for word in ("--module", name)]
    for name in ("account", "qos"):
        value = getattr(options, name)
        words += [] if value is None else [f"--{name}={value}"]
    arguments = [*(["--whole"] if whole else []), *words, "--", await host.root()]
    call = RuntimeCall("cluster", arguments, failure, _TIMEOUT_S)
    return await runtime_call(host, call, ClusterAnswer.of)


def chosen_partition(options: HostRecord, cluster: ClusterAnswer) -> PartitionAnswer:
    """The partition that the host was added with, else the cluster's default.

    Raises:
        HostError: `PARTITION_UNKNOWN`, `ACCOUNT_REFUSED`, `JOB_REFUSED`.
    """
    named = options.partition
    candidates = [
        offered
        for offered in cluster.partitions
        if offered.name == named or (not named and offered.is_default)
    ]
    usable = [offered for offered in candidates if offered.is_up and offered.nodes]
    if not usable:
        names = ", ".join(offered.name for offered in cluster.partitions if offered.is_up) or "none"
        what = f"partition {named!r}" if named else "default partition"
        state = "is down or has no nodes" if candidates else "does not exist"
        raise HostError(
            "PARTITION_UNKNOWN",
            f"The {what} of {options.name} {state}; those that are up: {names}.",
            f"Change it: {job_option(options.name, 'partition', 'NAME')}.",
            field="host",
        )
    partition = usable[0]
    _refuse_account(options, partition, cluster.account)
    node_for(options, partition)  # or none has what the host was added with
    return partition


def another_root(options: HostRecord) -> str:
    """The commands that give a cluster another root."""
    name = options.name
    added = command("hosts add", name, options.target, "--root", "DIR", *options.options)
    return f"{command('hosts remove', name)}, then {added}"


def node_facts(
    login: HostFacts, options: HostRecord, partition: PartitionAnswer, used_up: Sequence[UsedUp]
) -> HostFacts:
    """The machine that a job gets: the login node's, with the hardware of one of the nodes.
    `used_up`: what jobs have none of any more.

    Raises:
        HostError: `JOB_REFUSED`, no node has what the host was added with.
    """
    from trainmaster.plan.facts import SlurmFacts, TorchFacts  # imports all of planning

    node = node_for(options, partition)
    slurm_options = {name: getattr(options, name) for name in SLURM_OPTIONS}
    slurm = SlurmFacts(
        **{**slurm_options, "partition": partition.name},
        limit_s=partition.limit_s,
        cpus=node.cpus,
        memory_mib=node.memory_mib,
        gpus=node.gpus,
        gpu_type=node.gpu if node.is_one_of_several else None,
        nodes=node.nodes,
        gpu_nodes=node.gpu_nodes if node.gpus else None,
        max_nodes=partition.max_nodes,
        used_up=tuple((share.whose, share.resource, share.limit) for share in used_up),
    )
    memory_gib = node.memory_mib / 1024 if node.memory_mib > 1 else None
    gpus, torch = _gpus(node), login.torch
    if torch is not None and gpus:  # a login node has no GPU to say so by
        bf16 = (gpus[0].capability or 0.0) >= _FIRST_BF16
        torch = TorchFacts(
            version=torch.version, cuda=torch.cuda, cuda_available=True, bf16_gpu=bf16
        )
    return login.model_copy(
        update={
            "slurm": slurm,
            "cores": float(node.cpus),
            "memory_total_gib": memory_gib or login.memory_total_gib,
            "memory_available_gib": memory_gib or login.memory_available_gib,
            "gpus": gpus,
            "torch": torch,
        }
    )


def _gpus(node: JobNode) -> tuple[GpuFacts, ...]:
    from trainmaster.plan.facts import GpuFacts

    name = node.gpu or "gpu"
    gpu_model = find_gpu(name)
    memory_gib = _UNKNOWN_GIB if gpu_model is None else gpu_model.memory_gib
    has_bf16 = gpu_model is None or gpu_model.bf16
    return tuple(
        GpuFacts(
            index=index,
            name=name,
            memory_gib=memory_gib,
            memory_free_gib=memory_gib,
            capability=_FIRST_BF16 if has_bf16 else _BEFORE_BF16,
        )
        for index in range(node.gpus)
    )


def _refuse_account(options: HostRecord, partition: PartitionAnswer, charged: str | None) -> None:
    if not partition.accounts or (options.account or charged) in partition.accounts:
        return
    account = f"account {options.account!r}" if options.account else "your default account"
    raise HostError(
        "ACCOUNT_REFUSED",
        f"Partition {partition.name} of {options.name} is for the accounts "
        f"{', '.join(partition.accounts)}; jobs would use {account}.",
        f"Change it: {job_option(options.name, 'account', 'NAME')}, or {option('--partition')}.",
        field="host",
    )
