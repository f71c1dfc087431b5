"""Answers about machines for rent, rented boxes and what they cost."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainmaster.words.answers.base import Answer


class OfferColumns(Answer):
    """Offers by column, as they are sorted; every list is as long as `offer`."""

    offer: list[str] = Field(description="what provision takes")
    gpu: list[str]
    count: list[int]
    gpu_memory_gib: list[float | None]
    cpu_cores: list[float | None]
    memory_gib: list[float | None]
    disk_gib: list[float | None]
    usd_per_h: list[float]
    usd_per_btok: list[float | None] | None = Field(
        default=None, description="predicted dollars per billion tokens of the spec"
    )
    region: list[str | None]
    interruptible: list[bool]
    priced_at: list[str]


class OffersAnswer(Answer):
    offers: OfferColumns
    sources: dict[str, str] = Field(description="by provider, the address that told the prices")
    not_asked: dict[str, str] | None = Field(
        default=None, description="by provider, why there is nothing of it, or less"
    )
    more: int | None = Field(default=None, description="further offers that `limit` left out")
    spec_problem: str | None = Field(default=None, description="why the spec fits none of them")
    next_step: str | None = None
    next_tools: list[str] | None = None


class ProvisionAnswer(Answer):
    """`ready` once an SSH command has succeeded; until then the box goes on booting by itself."""

    box: str
    host: str
    state: Literal["intended", "created", "ready", "releasing", "ended"]
    provider: str
    usd_per_h: float
    budget_usd: float
    lease_ends_at: str
    own_timer: str = Field(description="what the box itself can do at its lease's end")
    reason: str | None = None
    next_step: str | None = None
    next_tools: list[str] | None = None


class ReleaseAnswer(Answer):
    box: str
    host: str
    state: Literal["intended", "created", "ready", "releasing", "ended"]
    mirrored: list[str] | None = Field(default=None, description="runs brought here before")
    spent_usd: float
    next_step: str | None = None
    next_tools: list[str] | None = None


class BoxRow(Answer):
    box: str
    host: str
    provider: str
    state: str
    usd_per_h: float
    spent_usd: float
    budget_usd: float
    lease_ends_at: str
    ended_at: str | None = None
    reason: str | None = None


class StrayRow(Answer):
    """A box with our tag that no record knows."""

    box: str
    provider: str
    provider_id: str
    usd_per_h: float | None = None
    of_this_home: bool


class ReconcileAnswer(Answer):
    did: dict[str, list[str]] | None = Field(
        default=None, description="by box, what was due and was done"
    )
    strays: list[StrayRow] | None = None
    not_asked: dict[str, str] | None = Field(
        default=None, description="by provider, why nothing is known of its boxes"
    )
    next_step: str | None = None


class CostsAnswer(Answer):
    spent_usd: float
    committed_usd: float = Field(description="what open leases may still come to")
    max_usd_total: float
    boxes: list[BoxRow]
    runs: dict[str, float] = Field(description="by run, dollars of its attempts' time")
    strays: list[StrayRow] | None = None
    not_asked: dict[str, str] | None = None
    next_step: str | None = None
