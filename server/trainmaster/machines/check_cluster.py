"""The rows of `hosts check` for a cluster: Slurm, its partitions, the folder that nodes share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainer_runtime.core.answers.slurm import ClusterAnswer, PartitionAnswer
from trainer_runtime.core.protocol.duration import spoken_duration
from trainer_runtime.core.protocol.text import shown
from trainmaster.backends.hosts import Host
from trainmaster.backends.slurm.cluster import chosen_partition, read_cluster
from trainmaster.store.host_record import HostRecord
from trainmaster.words.answers.checks import CheckRow, failed_by, passed, warning
from trainmaster.words.errors import HostError

# What is true of the login node and says nothing of the nodes that jobs get.
_OF_LOGIN = ("gpu", "logging out", "tmux or screen", "/dev/shm", "cores and memory")
_MOST_SHOWN = 20


async def check_cluster(host: Host, options: HostRecord) -> list[CheckRow]:
    """A row for Slurm, for the partition of jobs and for each other one; starts nothing."""
    try:
        cluster = await read_cluster(host)
    except HostError as error:
        return [failed_by("slurm", error)]
    return list(_rows(cluster, options))


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
        yield passed("partition of jobs", _described(chosen), _plain(chosen.name))
    others = [one for one in cluster.partitions if one != chosen]
    for one in others[:_MOST_SHOWN]:
        yield passed("other partition", _described(one), _plain(one.name))
    if cluster.local is not None:
        yield warning(
            "shared folder",
            "the root's disk may be the login node's alone",
            "Compute nodes have to see it under the same path: else remove the host, and add it "
            "again with `--root` in a shared folder.",
            _plain(cluster.local),
        )


def _described(one: PartitionAnswer) -> str:
    limit = "no time limit" if one.limit_s is None else f"jobs up to {spoken_duration(one.limit_s)}"
    gpus = f", {one.gpus} GPUs" if one.gpus else ""
    memory = f", {one.memory_mib / 1024:.0f} GiB" if one.memory_mib > 1 else ""
    nodes = "1 node" if one.nodes == 1 else f"{one.nodes} nodes"
    state = "" if one.is_up else ", takes no jobs now"
    accounts = ", for some accounts only" if one.accounts else ""
    return f"{limit}; {nodes} of {one.cpus} cores{memory}{gpus}{accounts}{state}"


def _plain(text: str) -> str:
    return shown(text.encode(errors="replace"))
