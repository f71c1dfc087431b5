"""Answers about offers, rented instances and their costs."""

from typing import Literal

from trainmaster.answers.base import Answer, ItemFailure, WholeAnswer
from trainmaster.answers.fields import field
from trainmaster.answers.fitting import Cap, Fields

InstanceState = Literal["intended", "created", "ready", "releasing", "ended"]


class OfferColumns(Answer):
    """Offers by column, in their order; every list is as long as `offer`."""

    offer: list[str] = field(description="the name that provision takes")
    gpu: list[str]
    count: list[int]
    gpu_memory_gib: list[float | None]
    cpu_cores: list[float | None]
    memory_gib: list[float | None]
    disk_gib: list[float | None]
    usd_per_h: list[float]
    usd_per_btok: list[float | None] | None = field(
        default=None, description="predicted dollars per billion tokens of the spec"
    )
    region: list[str | None]
    interruptible: list[bool]
    priced_at: list[str]


class OffersAnswer(WholeAnswer):
    offers: OfferColumns
    sources: dict[str, str] = field(description="by provider, the URL that returned the prices")
    not_asked: dict[str, str] | None = field(
        default=None, description="by provider, why its offers are missing or incomplete"
    )
    more: int | None = field(default=None, description="further offers beyond `limit`")
    spec_problem: str | None = field(default=None, description="why the spec fits none of them")
    next_step: str | None = None

    def say_shortened(self, fields: Fields, lost: dict[str, int]) -> None:
        """The offers that were left out count as further ones."""
        super().say_shortened(fields, lost)
        missing = len(self.offers.offer) - len(fields["offers"]["offer"])
        if missing:
            fields["more"] = (self.more or 0) + missing


class ProvisionAnswer(WholeAnswer):
    """`ready` once an SSH command has succeeded; until then the instance boots in the
    background."""

    instance: str
    host: str
    state: InstanceState
    provider: str
    usd_per_h: float
    budget_usd: float
    lease_ends_at: str
    lease_timer: str = field(description="what the instance does by itself at its lease's end")
    reason: str | None = None
    next_step: str | None = None


class ReleaseAnswer(WholeAnswer):
    instance: str
    host: str
    state: InstanceState
    mirrored: list[str] | None = field(default=None, description="runs copied here before")
    spent_usd: float
    next_step: str | None = None


class InstanceRow(Answer):
    """`training_share`: of `spent_usd`, what steps cost that count; `lost_usd`: the rest, by
    cause. Runs that share an instance each count in full."""

    instance: str
    host: str
    provider: str
    state: str
    usd_per_h: float
    spent_usd: float
    budget_usd: float
    lease_ends_at: str
    training_share: float | None = None
    lost_usd: dict[str, float] | None = None
    ended_at: str | None = None
    keep: bool | None = field(default=None, description="not released when it is idle")
    reason: str | None = None


class VolumeRow(Answer):
    """A network volume. It costs until it is released, whether anything uses it or not."""

    volume: str
    tag: str
    provider: str
    region: str
    state: Literal["intended", "ready", "releasing", "ended"]
    size_gb: int
    usd_per_h: float
    usd_per_month: float
    spent_usd: float
    budget_usd: float
    used_by: str | None = field(default=None, description="the host that it is attached to")
    runs: list[str] | None = field(default=None, description="whose files are on it")
    lease_ends_at: str
    ended_at: str | None = None
    reason: str | None = None


class OrphanRow(Answer):
    """An instance or volume with a Trainmaster tag and without a record here."""

    instance: str
    provider: str
    provider_id: str
    size_gb: float | None = field(default=None, description="of a volume")
    usd_per_h: float | None = None
    of_this_home: bool


class ReconcileAnswer(WholeAnswer):
    did: dict[str, list[str]] | None = field(default=None, description="by instance, what was done")
    orphans: list[OrphanRow] | None = None
    not_asked: dict[str, str] | None = field(
        default=None, description="by provider, why its instances are unknown"
    )
    next_step: str | None = None


class CostsAnswer(WholeAnswer):
    cap = Cap(drops=("runs", "instances"))

    spent_usd: float
    committed_usd: float = field(description="maximum further cost of open leases")
    max_usd_total: float
    instances: list[InstanceRow]
    volumes: list[VolumeRow] | None = None
    runs: dict[str, float] = field(description="by run, dollars for the time of its attempts")
    orphans: list[OrphanRow] | None = None
    not_asked: dict[str, str] | None = None
    failed: list[ItemFailure] | None = None
    next_step: str | None = None
