"""The answers of the login node of a Slurm cluster: jobs of runs, partitions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trainer_runtime.core.decoding import Fields, JsonRecord, SparseRecord

WAITING, RUNNING, ENDED = "waiting", "running", "ended"
# In place of a user who has ended a job: it was asked for by a command of ours.
TRAINMASTER = "trainmaster"
# Slurm's words for jobs that have ended. A job with any other word may still hold its node.
ENDED_WORDS = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
        *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
    }
)
# The word for a job that was asked to end: its processes may still save.
COMPLETING = "COMPLETING"
# A job's number; of a task of an array, the array's and the task's own, as Slurm has it: `123_4`.
JobId = int | str
# Kinds of file systems that nodes share, or how their names begin.
_NETWORK_DISKS = (
    *("nfs", "lustre", "gpfs", "beegfs", "ceph", "panfs", "wekafs", "pvfs2", "fuse.", "9p"),
)
_TASK = re.compile(r"[0-9]+_[0-9]+")


def is_network_disk(kind: str) -> bool:
    return kind.startswith(_NETWORK_DISKS)


def read_job_id(text: str) -> JobId | None:
    """As Slurm's programs print it; None for anything else."""
    return int(text) if text.isdecimal() else text if _TASK.fullmatch(text) else None


def job_order(job_id: JobId) -> tuple[int, ...]:
    """By which later jobs are greater."""
    return tuple(map(int, str(job_id).split("_")))


def find_job_id(fields: Fields, name: str) -> JobId | None:
    """Raises: DecodingError: something else is there."""
    value = fields.values.get(name)
    is_task = isinstance(value, str) and _TASK.fullmatch(value)
    return str(value) if is_task else fields.find_integer(name)


def job_id_of(fields: Fields) -> JobId:
    """Raises: DecodingError: there is none."""
    found = find_job_id(fields, "job_id")
    return fields.integer("job_id") if found is None else found


@dataclass(frozen=True, slots=True)
class JobAnswer(SparseRecord):
    """A run's newest job. `place`: that of its folder among those asked about. `state` is waiting,
    running or ended; `word` Slurm's own for it, `reason` Slurm's for why it waits or ended. Times
    are Unix seconds: `begin_t` is expected where the job waits, `end_t` the limit while it runs.
    `has_begun`: it was given a node. `alone`: it waits, and no other job of this user runs."""

    place: int
    job_id: JobId = field(metadata={"read": job_id_of})
    state: str
    word: str
    reason: str | None = None
    begin_t: float | None = None
    end_t: float | None = None
    has_begun: bool = True
    alone: bool = False

    @property
    def is_alive(self) -> bool:
        return self.state != ENDED


@dataclass(frozen=True, slots=True)
class JobEnd(SparseRecord):
    """How a job ended. `word`: Slurm's state, None where nobody knows it any more. `by`: who ended
    it, where somebody did: a user, or `TRAINMASTER`. Times are Unix seconds, None where it never
    began, or nobody knows. `is_final`: no later question brings more."""

    place: int
    job_id: JobId = field(metadata={"read": job_id_of})
    word: str | None = None
    by: str | None = None
    begin_t: float | None = None
    end_t: float | None = None
    is_final: bool = True


@dataclass(frozen=True, slots=True)
class SubmitAnswer:
    """`started`: by this very call. `job`: the one that there is now; None where the run needs no
    allocation, and a supervisor on the login node answers its request. `cancelled`: a job that
    waited, and was taken from the queue by this call. `avoided`: the nodes that a started job is
    kept from, where earlier ones could not begin."""

    started: bool
    job: JobAnswer | None = None
    cancelled: JobId | None = None
    avoided: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        job = {} if self.job is None else {"job": self.job.to_dict()}
        cancelled = {} if self.cancelled is None else {"cancelled": self.cancelled}
        avoided = {"avoided": list(self.avoided)} if self.avoided else {}
        return {"started": self.started, **job, **cancelled, **avoided}

    @classmethod
    def of(cls, fields: Fields) -> SubmitAnswer:
        job = fields.part("job", JobAnswer.of)
        cancelled = find_job_id(fields, "cancelled")
        return cls(fields.flag("started", False), job, cancelled, fields.texts("avoided"))


def _gpus(fields: Fields) -> dict[str, int]:
    return {row.text("type"): row.integer("count") for row in fields.sections("gpus")}


@dataclass(frozen=True, slots=True)
class NodeKind(JsonRecord):
    """Nodes of a partition that are alike, `nodes` in number. `gpus`: how many each has, by their
    type, which is empty where Slurm names none."""

    nodes: int
    cpus: int = 1
    memory_mib: int = 0
    gpus: Mapping[str, int] = field(default_factory=dict, metadata={"read": _gpus})
    features: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        gpus = [{"type": name, "count": count} for name, count in self.gpus.items()]
        return {**asdict(self), "gpus": gpus}


@dataclass(frozen=True, slots=True)
class PartitionAnswer(SparseRecord):
    """A partition: its nodes, and the limits of its jobs. `limit_s`, `max_nodes`: of a job, None
    for no limit. `accounts`: those that may use it, empty for all."""

    name: str
    kinds: tuple[NodeKind, ...] = ()
    is_default: bool = False
    is_up: bool = True
    limit_s: float | None = None
    accounts: tuple[str, ...] = field(default_factory=tuple)
    max_nodes: int | None = None

    @property
    def nodes(self) -> int:
        return sum(kind.nodes for kind in self.kinds)


@dataclass(frozen=True, slots=True)
class UsedUp(JsonRecord):
    """A resource of which an account or a QOS (`whose`) has used all that it may: minutes of `cpu`,
    `gres/gpu` and so on, or of `wall` time."""

    whose: str
    resource: str
    used: int
    limit: int


@dataclass(frozen=True, slots=True)
class QuotaAnswer(JsonRecord):
    """A user's own quota of a disk; a limit of None is none."""

    used_kib: int
    limit_kib: int | None
    files: int
    most_files: int | None


@dataclass(frozen=True, slots=True)
class ClusterAnswer(JsonRecord):
    """A cluster as its login node sees it. `version`: of Slurm. `disk`: the kind of file system of
    the folder asked about; `locks`: whether a node's locks on files there hold on the others, None
    where nobody knows. `modules`: those that trainings load, None without a `module` command;
    `missing`: of the modules asked about. `accounts`: those of the user. `account`: that jobs are
    charged to, None where nobody says; `used_up`: what it has no more of. `sharing`: the partitions
    whose nodes are known to have the folder."""

    version: str
    partitions: tuple[PartitionAnswer, ...]
    disk: str | None = None
    locks: bool | None = None
    modules: tuple[str, ...] | None = None
    missing: tuple[str, ...] = ()
    quota: QuotaAnswer | None = None
    accounts: tuple[str, ...] = ()
    account: str | None = None
    used_up: tuple[UsedUp, ...] = ()
    sharing: tuple[str, ...] = ()
