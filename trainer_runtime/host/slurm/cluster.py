"""The partitions of a cluster, with the limits of their jobs and the kinds of their nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from trainer_runtime.core.answers.slurm import ClusterAnswer, NodeKind, PartitionAnswer
from trainer_runtime.host.slurm.folder_probe import known_partitions
from trainer_runtime.host.slurm.hours import charged
from trainer_runtime.host.slurm.programs import run_program
from trainer_runtime.host.slurm.shared_disk import disk_of
from trainer_runtime.host.slurm.surroundings import (
    available_modules,
    missing_modules,
    of_training,
    own_accounts,
    own_quota,
)

_NODE = "%N|%P|%c|%m|%G|%f"
_COLUMNS = 6
_MOST_KINDS = 200
_GPU = re.compile(r"gpu(?::([A-Za-z0-9_.-]+))?:(\d+)")
_LIMIT = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_NAMED = frozenset({"(null)", "N/A", ""})


def describe_cluster(
    root: Path,
    modules: Sequence[str] = (),
    *,
    account: str | None = None,
    qos: str | None = None,
    whole: bool = False,
) -> ClusterAnswer:
    """The cluster of this login node; `root`: the folder that its nodes would have to share;
    `modules`: those that jobs would load; `account`, `qos`: what they would be charged to, None for
    the user's own. `whole`: with what takes seconds to ask for.

    Raises:
        SlurmError: it can't be asked.
    """
    version = run_program("sinfo", "--version").split()
    partitions = run_program("scontrol", "show", "partition", "--oneliner")
    nodes = run_program("sinfo", "--noheader", "--Node", f"--format={_NODE}")
    disk, (charged_to, used_up) = disk_of(root), charged(account, qos)
    answer = ClusterAnswer(
        version=version[-1] if version else "",
        partitions=tuple(read_partitions(partitions, nodes)),
        disk=None if disk is None else disk.kind,
        locks=None if disk is None else disk.locks,
        account=charged_to,
        used_up=tuple(used_up),
        sharing=tuple(known_partitions(root)),
    )
    if not whole:
        return answer
    available = available_modules()
    return replace(
        answer,
        modules=None if available is None else tuple(of_training(available)),
        missing=tuple(missing_modules(modules, available)),
        quota=own_quota(root, answer.disk),
        accounts=tuple(own_accounts()),
    )


def read_partitions(partitions: str, nodes: str) -> Iterable[PartitionAnswer]:
    """By the output of `scontrol show partition` and of `sinfo`."""
    rows = [row for line in nodes.splitlines() if len(row := line.split("|")) == _COLUMNS]
    for line in partitions.splitlines():
        values = dict(word.split("=", 1) for word in line.split() if "=" in word)
        name = values.get("PartitionName")
        if name is not None:
            own = [row for row in rows if row[1].rstrip("*") == name]
            yield _partition(name, values, own)


def _partition(name: str, values: dict[str, str], nodes: list[list[str]]) -> PartitionAnswer:
    accounts = values.get("AllowAccounts", "ALL")
    return PartitionAnswer(
        name=name,
        kinds=tuple(_kinds(nodes)),
        is_default=values.get("Default") == "YES",
        is_up=values.get("State", "UP") == "UP",
        limit_s=read_limit(values.get("MaxTime", "")),
        accounts=() if accounts == "ALL" else tuple(accounts.split(",")),
        max_nodes=_number(values.get("MaxNodes", "")) or None,
    )


def _kinds(nodes: list[list[str]]) -> Iterator[NodeKind]:
    """The most frequent first."""
    alike = Counter(tuple(row[2:]) for row in nodes)
    for (cpus, memory, gres, features), count in alike.most_common(_MOST_KINDS):
        named = sorted(set(features.split(",")) - _NAMED)
        yield NodeKind(count, _number(cpus), _number(memory), _gpus(gres), tuple(named))


def read_limit(text: str) -> float | None:
    """Seconds of `days-hours:minutes:seconds`, as Slurm writes it; None for no limit."""
    match = _LIMIT.fullmatch(text)
    if match is None:
        return None
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:  # then hours are first
        numbers += [0] * (3 - len(numbers))
    elif len(numbers) == 1:  # minutes, as in what users write
        numbers = [0, *numbers, 0]
    else:
        numbers = [0] * (3 - len(numbers)) + numbers
    hours, minutes, seconds = numbers
    return 86400.0 * int(days or 0) + 3600.0 * hours + 60.0 * minutes + seconds


def _gpus(text: str) -> dict[str, int]:
    """How many GPUs a node has of each type."""
    counts: Counter[str] = Counter()
    for kind, count in _GPU.findall(text):
        counts[kind] += int(count)
    return dict(counts)


def _number(text: str) -> int:
    digits = re.match(r"\d+", text)
    return int(digits.group()) if digits else 0
