"""The rows of `hosts check` for a cluster: Slurm, its partitions, the folder that nodes share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from trainer_runtime.core.answers.slurm import (
    ClusterAnswer,
    NodeKind,
    PartitionAnswer,
    QuotaAnswer,
    UsedUp,
    is_network_disk,
)
from trainer_runtime.core.environment.gpus import gpu_label
from trainer_runtime.core.protocol.command import option
from trainer_runtime.core.protocol.figures import gib_text, size_text, spoken_duration
from trainer_runtime.core.protocol.text import shown
from trainmaster.answers.checks import CheckRow, failed_by, passed, warning
from trainmaster.backends.hosts import Host
from trainmaster.backends.slurm.cluster import another_root, chosen_partition, read_cluster
from trainmaster.backends.slurm.job_node import node_for
from trainmaster.errors.advice import job_option
from trainmaster.errors.errors import HostError
from trainmaster.store.host_record import HostRecord

# What is true of the login node and says nothing of the nodes that jobs get.
_OF_LOGIN = ("gpu", "logging out", "tmux or screen", "/dev/shm", "cores and memory")
_MOST_SHOWN = 20
_MOST_KINDS = 4
_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "ramfs", "overlay"})
_GIB = 1 << 20  # KiB
_NEARLY = 0.9


async def check_cluster(host: Host, options: HostRecord) -> tuple[list[CheckRow], list[str]]:
    """A row for Slurm, for the partition of jobs and for each other one; and the GPUs of a node
    that jobs get. Starts nothing."""
    try:
        cluster = await read_cluster(host, options, whole=True)
    except HostError as error:
        return [failed_by("slurm", error)], []
    return list(_rows(cluster, options)), _gpus(cluster, options)


def _gpus(cluster: ClusterAnswer, options: HostRecord) -> list[str]:
    try:
        node = node_for(options, chosen_partition(options, cluster))
    except HostError:
        return []  # which a row says
    return [gpu_label(node.gpu or "gpu")] * node.gpus


def without_login(rows: Iterable[CheckRow]) -> list[CheckRow]:
    """The rows that are true of a cluster's nodes, too."""
    return [row for row in rows if not row.name.startswith(_OF_LOGIN)]


def _rows(cluster: ClusterAnswer, options: HostRecord) -> Iterator[CheckRow]:
    yield passed("slurm", "its controller answers", _plain(cluster.version))
    chosen = None
    try:
        chosen = chosen_partition(options, cluster)
    except HostError as error:
        yield failed_by("partition of jobs", error)
    else:
        yield passed("partition of jobs", _described(chosen), _names(chosen))
    others = [partition for partition in cluster.partitions if partition != chosen]
    for partition in others[:_MOST_SHOWN]:
        yield passed("other partition", _described(partition), _names(partition))
    yield from _disk(cluster, options, chosen)
    yield from _modules(cluster, options)
    if cluster.accounts:
        yield _accounts(cluster.accounts, options)
    for used_up in cluster.used_up:
        yield _hours(used_up, options)


def _accounts(accounts: Sequence[str], options: HostRecord) -> CheckRow:
    """A cluster that does not enforce accounts takes jobs of any."""
    names = _plain(", ".join(accounts[:_MOST_SHOWN]))
    if options.account is None or options.account.lower() in {
        account.split(" ")[0].lower() for account in accounts
    }:
        return passed("accounts", "that jobs may be charged to", names)
    return warning(
        "accounts",
        f"jobs would be charged to {options.account}, which is not one of yours",
        f"Change it: {job_option(options.name, 'account', 'NAME')}.",
        names,
    )


def _hours(used_up: UsedUp, options: HostRecord) -> CheckRow:
    named = "qos" if used_up.whose.startswith("QOS") else "account"
    return warning(
        "hours",
        "all of them are used up",
        "Ask those who run the cluster for more, or have jobs charged to another: "
        f"{job_option(options.name, named, 'NAME')}.",
        _plain(f"{used_up.whose}: {used_up.limit / 60:g} h of {used_up.resource}"),
    )


def _disk(
    cluster: ClusterAnswer, options: HostRecord, chosen: PartitionAnswer | None
) -> Iterator[CheckRow]:
    """Where runs lie: an exported disk of a login node appears as local, too, and only what was
    seen on a compute node is proof."""
    kind = _plain(cluster.disk or "unknown")
    if chosen is not None and chosen.name in cluster.sharing:
        yield passed("shared folder", f"nodes of partition {chosen.name} have the root", kind)
    elif cluster.disk in _LOCAL:
        yield warning(
            "shared folder",
            "the root's disk may be the login node's alone",
            "Compute nodes have to see it under the same path, which the first launch tries on one "
            f"of them. Another root: {another_root(options)}.",
            kind,
        )
    elif cluster.disk is not None and is_network_disk(cluster.disk):
        yield passed(
            "shared folder",
            "the root's disk is a network's, which the first launch tries on a node",
            kind,
        )
    if cluster.locks is not None:
        yield _locks(kind, holds=cluster.locks)
    if cluster.quota is not None:
        yield _quota(cluster.quota)


def _locks(disk: str, *, holds: bool) -> CheckRow:
    if holds:
        return passed("locks", "a node's locks hold on the others", disk)
    return warning(
        "locks",
        "a node's locks do not hold on the others",
        "A run's next job may begin while the one before it still saves: ask those who run the "
        "cluster for locks of all nodes (Lustre: `flock`; NFS: `local_lock=none`; BeeGFS: "
        f"`tuneUseGlobalFileLocks`), or add the host again with {option('--root')} on another "
        "disk.",
        disk,
    )


def _quota(quota: QuotaAnswer) -> CheckRow:
    used = size_text(1024 * quota.used_kib)
    space = "no limit" if quota.limit_kib is None else f"of {size_text(1024 * quota.limit_kib)}"
    files = "" if quota.most_files is None else f"; {quota.files:,} of {quota.most_files:,} files"
    usage = f"{used}, {space}{files}"
    pairs = ((quota.used_kib, quota.limit_kib), (quota.files, quota.most_files))
    if any(most is not None and used >= _NEARLY * most for used, most in pairs):
        return warning("quota", usage, "Free space there: checkpoints may not fit.")
    return passed("quota", usage)


def _modules(cluster: ClusterAnswer, options: HostRecord) -> Iterator[CheckRow]:
    if cluster.missing:
        yield CheckRow(
            name="modules",
            state="fail",
            found="the login node lacks modules that jobs would load",
            untrusted_found=_plain(", ".join(cluster.missing)),
            remedy="Name some that `module avail` shows there: "
            f"{job_option(options.name, 'module', 'NAME')}.",
        )
    elif cluster.modules is not None:
        names = ", ".join(cluster.modules)
        state = "`module` has, among others" if names else "`module` has none of CUDA or Python"
        yield passed("modules", state, _plain(names) if names else None)


def _described(partition: PartitionAnswer) -> str:
    limit = (
        "no time limit"
        if partition.limit_s is None
        else f"jobs up to {spoken_duration(partition.limit_s)}"
    )
    state = "" if partition.is_up else ", takes no jobs now"
    accounts = ", for some accounts only" if partition.accounts else ""
    alike = Counter[str]()
    for kind in partition.kinds:
        alike[_hardware(kind)] += kind.nodes
    shown_kinds = [
        f"{'1 node' if count == 1 else f'{count} nodes'} of {what}"
        for what, count in alike.most_common(_MOST_KINDS)
    ]
    rest = len(alike) - len(shown_kinds)
    also = [f"{rest} other kinds of nodes"] if rest else []
    nodes = " and ".join([*shown_kinds, *also]) or "0 nodes"
    return f"{limit}; {nodes}{accounts}{state}"


def _hardware(kind: NodeKind) -> str:
    memory = f", {gib_text(kind.memory_mib / 1024)}" if kind.memory_mib > 1 else ""
    gpus = sum(kind.gpus.values())
    return f"{kind.cpus} cores{memory}{f', {gpus} GPUs' if gpus else ''}"


def _names(partition: PartitionAnswer) -> str:
    """What the cluster calls a partition and its GPUs."""
    types = {name for kind in partition.kinds for name in kind.gpus if name}
    return _plain(", ".join([partition.name, *sorted(types)[:_MOST_SHOWN]]))


def _plain(text: str) -> str:
    return shown(text.encode(errors="replace"))
