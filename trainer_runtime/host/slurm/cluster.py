"""The partitions of a cluster, with the limits of their jobs and the kinds of their nodes."""

from __future__ import annotations

import os
import pwd
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from trainer_runtime.core.answers.slurm import (
    ClusterAnswer,
    NodeKind,
    PartitionAnswer,
    QuotaAnswer,
    UsedUp,
)
from trainer_runtime.host.processes.quick_commands import answer_of
from trainer_runtime.host.slurm.folder_probe import known_partitions
from trainer_runtime.host.slurm.programs import SlurmError, run_program
from trainer_runtime.host.slurm.shared_disk import disk_of

_WITHIN_S = 20.0
# The function is defined by the rc files of a login, if anywhere.
_AVAILABLE = "type module >/dev/null 2>&1 || . /etc/profile; module -t avail 2>&1"
_OF_TRAINING = re.compile(r"(?i)(^|[/-])(cuda|cudnn|nccl|python|pytorch|torch|ana|mini)(conda)?")
_MODULE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+/-]{0,99}")
_MOST_NAMED = 20
_ACCOUNT_COLUMNS = "account,partition,qos"
# An account stands below others, whose limits are its own, too.
_MOST_PARENTS = 10
_ENFORCED = re.compile(r"^AccountingStorageEnforce\s*=\s*(\S+)", re.MULTILINE)
_LIMITED = {"limits", "all", "safe"}
_KEEPS_NONE = re.compile(r"^AccountingStorageType\s*=\s*\S*none\s*$", re.MULTILINE)
_ACCOUNT = re.compile(r"\bAccount=(\S*) UserName=([^\s(]*)\S* Partition=(\S*) ")
_PARENT = re.compile(r"\bParentAccount=([^\s(]*)")
_MINUTES = re.compile(r"\bGrpTRESMins=(\S+)")
_WALL = re.compile(r"\bGrpWall=(\d+)\((\d+)(?:\.\d+)?\)")
_RESOURCE = re.compile(r"([^=,()]+)=(\d+)\((\d+)\)")
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


def charged(account: str | None, qos: str | None) -> tuple[str | None, list[UsedUp]]:
    """The account that jobs are charged to, by itself or as asked, and what of its resources, and
    of its QOS, nothing is left of; nothing where Slurm keeps no accounts, enforces no limits, or
    does not say."""
    try:
        settings = run_program("scontrol", "show", "config")
        if _KEEPS_NONE.search(settings):
            return account, []
        account = account or _default_account()
        enforced = _ENFORCED.search(settings)
        if enforced is None or not _LIMITED & set(enforced[1].lower().split(",")):
            return account, []
        return account, [*_of_account(account), *_of_qos(qos)]
    except SlurmError:
        return account, []


def _default_account() -> str | None:
    named = os.environ.get("SBATCH_ACCOUNT")
    if named:
        return named
    shape = ("--noheader", "--parsable2", "show", "user", _user(), "format=defaultaccount")
    return run_program("sacctmgr", *shape).strip() or None


def _of_account(account: str | None) -> Iterator[UsedUp]:
    seen: set[str] = set()
    while account and account not in seen and len(seen) < _MOST_PARENTS:
        seen.add(account)
        parent = None
        for line in _records("assoc", f"accounts={account}"):
            match = _ACCOUNT.search(line)
            if match is None or match[1] != account or match[2] not in ("", _user()):
                continue
            yield from read_used_up(f"account {account}", line)
            if not match[2] and (above := _PARENT.search(line)):
                parent = above[1]
        account = parent


def _of_qos(qos: str | None) -> Iterator[UsedUp]:
    for line in _records("qos", f"qos={qos}") if qos else ():
        if line.startswith(f"QOS={qos}("):
            yield from read_used_up(f"QOS {qos}", line)


def read_used_up(whose: str, line: str) -> Iterator[UsedUp]:
    """By a record of `scontrol show assoc_mgr`: minutes that are allowed, and used in brackets."""
    minutes, wall = _MINUTES.search(line), _WALL.search(line)
    pairs = _RESOURCE.findall(minutes[1]) if minutes else []
    pairs += [("wall", *wall.groups())] if wall else []
    for resource, limit, used in pairs:
        if int(used) >= int(limit):
            yield UsedUp(whose, resource, int(used), int(limit))


def _records(kind: str, chosen: str) -> list[str]:
    text = run_program("scontrol", "--oneliner", "show", "assoc_mgr", f"flags={kind}", chosen)
    return text.splitlines()


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def available_modules() -> list[str] | None:
    """The names of all modules; None where there is no `module`."""
    text = _output("bash", "-c", _AVAILABLE)
    return None if text is None else read_modules(text)


def read_modules(text: str) -> list[str]:
    """By the output of `module -t avail`, of Environment Modules or Lmod."""
    names = [re.sub(r"\s*[(<][^()<>]*[)>]$", "", line.strip()) for line in text.splitlines()]
    return [name.rstrip("/") for name in names if _MODULE.fullmatch(name)]


def of_training(names: Sequence[str]) -> list[str]:
    """Those of them that trainings load, the first few."""
    return [name for name in names if _OF_TRAINING.search(name)][:_MOST_NAMED]


def missing_modules(wanted: Sequence[str], available: Sequence[str] | None) -> list[str]:
    """Those of the wanted ones that are not there, neither by name nor as a name's version."""
    modules = available or ()
    return [
        name
        for name in wanted
        if not any(module == name or module.startswith(f"{name}/") for module in modules)
    ]


def own_quota(folder: Path, kind: str | None) -> QuotaAnswer | None:
    """The user's own on the disk of a folder; None where there is none, or nobody says."""
    place, user = _existing(folder), pwd.getpwuid(os.getuid()).pw_name
    if kind == "lustre":
        text = _output("lfs", "quota", "-q", "-u", user, str(place))
    else:
        text = _output("quota", "-w", "-f", _mount_point(place))
    return None if text is None else read_quota(text)


def read_quota(text: str) -> QuotaAnswer | None:
    """By the output of `quota -w` or `lfs quota -q`: file system, KiB, soft and hard limit, grace,
    files, their soft and hard limit."""
    for line in text.splitlines():
        numbers = [int(word.rstrip("*")) for word in line.split()[1:] if word.rstrip("*").isdigit()]
        if len(line.split()) >= 7 and len(numbers) >= 6:
            used, soft, hard, files, soft_files, hard_files = numbers[:6]
            limit, most_files = hard or soft, hard_files or soft_files
            if limit or most_files:
                return QuotaAnswer(used, limit or None, files, most_files or None)
    return None


def own_accounts() -> list[str]:
    """The accounts of this user that jobs may be charged to; none where no accounts are kept."""
    user = f"user={pwd.getpwuid(os.getuid()).pw_name}"
    shape = (
        "--noheader",
        "--parsable2",
        "show",
        "assoc",
        "where",
        user,
        f"format={_ACCOUNT_COLUMNS}",
    )
    text = ""
    with suppress(SlurmError):
        text = run_program("sacctmgr", *shape)
    return read_accounts(text)


def read_accounts(text: str) -> list[str]:
    """By the output of `sacctmgr show assoc`: each with its QOS, where it has some."""
    accounts = []
    for line in text.splitlines():
        account, _, rest = line.partition("|")
        partition, _, qos = rest.partition("|")
        of = f" in {partition}" if partition else ""
        accounts.append(f"{account}{of} (qos {qos})" if qos else f"{account}{of}")
    return list(dict.fromkeys(accounts))


def _existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _mount_point(place: Path) -> str:
    while not os.path.ismount(place) and place != place.parent:
        place = place.parent
    return str(place)


def _output(*command: str) -> str | None:
    """What a program prints; None where it is missing, fails or takes too long."""
    done = answer_of(command, within_s=_WITHIN_S)
    # `quota` ends with 1 where a quota is exceeded.
    if done is None or (done.returncode != 0 and "quota" not in command[0]):
        return None
    return done.stdout.decode(errors="replace")
