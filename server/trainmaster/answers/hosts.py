"""Answers about hosts, and about this machine."""

from typing import Literal

from trainmaster.answers.base import Answer, WholeAnswer
from trainmaster.answers.checks import CheckRow
from trainmaster.answers.fields import field
from trainmaster.answers.rentals import VolumeRow


class DoctorAnswer(WholeAnswer):
    ok: bool = field(description="false if any check failed")
    version: str
    home: str
    checks: list[CheckRow]
    not_checked: str | None = field(default=None, description="what isn't in use here")
    next_step: str


HostState = Literal["ok", "failing", "unreachable", "unchecked"]


class HostCheckAnswer(WholeAnswer):
    host: str
    ok: bool = field(description="false if any check failed")
    checks: list[CheckRow]
    next_step: str | None = None


class HostRow(Answer):
    name: str
    address: str
    transport: str | None = None
    launcher: str | None = field(default=None, description="slurm for a cluster")
    partition: str | None = None
    job_options: str | None = field(default=None, description="what else its jobs ask for")
    root: str
    cache: str | None = None
    state: HostState
    untrusted_reason: str | None = field(
        default=None, description="the error met; its message may quote the host"
    )
    as_of: float | None = field(default=None, description="Unix time of the last check or contact")
    gpus: list[str] | None = field(
        default=None, description="known models, or the reported name as a slug"
    )
    open_runs: int
    fingerprint: str | None = None
    lease_ends_at: str | None = field(default=None, description="for a rented instance")
    usd_per_h: float | None = None


class HostsAnswer(WholeAnswer):
    hosts: list[HostRow]
    volumes: list[VolumeRow] | None = field(default=None, description="rented network volumes")
    check: HostCheckAnswer | None = None


class HostAddedAnswer(WholeAnswer):
    """`fingerprint`: of the pinned key; none for a host added offline."""

    host: str
    address: str
    fingerprint: str | None = None
    checks: list[CheckRow]
    not_checked: str | None = field(default=None, description="what isn't in use here")
    next_step: str


class JobOptionsAnswer(WholeAnswer):
    host: str
    partition: str | None = field(default=None, description="none: the cluster's default")
    job_options: str | None = field(default=None, description="what else its jobs ask for")
    open_runs: list[str] = field(description="whose jobs ask for what they did")
    next_step: str


class HostTrustAnswer(WholeAnswer):
    host: str
    pinned: list[str] = field(description="the fingerprints pinned before")
    now: list[str]
    changed: bool


class HostRemovedAnswer(WholeAnswer):
    host: str
    abandoned: list[str] = field(description="open runs that are no longer followed")
    next_step: str | None = None


class CacheEntry(Answer):
    kind: str
    name: str
    size_bytes: int
    reason: str | None = None


class LeftRunRow(Answer):
    """`state`: `recovered` is on record again; `left`: of another home, or without a record."""

    run_id: str
    state: Literal["recovered", "left"]
    supervised: bool = field(description="whether its supervisor lives")
    reason: str | None = None


class RecoverAnswer(WholeAnswer):
    host: str
    runs: list[LeftRunRow]
    more: bool | None = field(default=None, description="there are further runs: call again")
    next_step: str


class GcAnswer(WholeAnswer):
    host: str
    removed: list[CacheEntry]
    kept: list[CacheEntry]
    freed_bytes: int
    dry_run: bool | None = None
