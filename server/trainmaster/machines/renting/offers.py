"""Machines that can be rented now, from every provider with a key, asked concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trainer_runtime.core.environment.gpus import find_gpu
from trainer_runtime.core.protocol.command import command, option
from trainer_runtime.core.protocol.figures import in_utc, usd_text
from trainer_runtime.core.protocol.text import shown as shown_text
from trainmaster.answers.rentals import OfferColumns, OffersAnswer
from trainmaster.errors.errors import CloudError, UsageError
from trainmaster.machines.clouds import Offer, Wanted
from trainmaster.machines.renting.factory import CloudFactory, cloud_factory, with_timeout
from trainmaster.machines.renting.token_price import Prices, prices_for
from trainmaster.settings.clouds import CLOUD_NAMES, KEY_NAMES
from trainmaster.sync.workspace import Workspace

Sort = Literal["price", "value"]
DEFAULT_LIMIT = 20
# Enough for an environment, data and a few checkpoints.
DEFAULT_DISK_GIB = 50.0
ANYTHING = Wanted()
_MAX_OTHERS = 5


@dataclass(frozen=True, slots=True)
class OffersQuery:
    """What to list, and in which order.

    `provider`: only this one. `spec`: a path or YAML text, whose tokens are priced. `sort`: None
    for `value` with a spec, `price` without.
    """

    wanted: Wanted = ANYTHING
    provider: str | None = None
    spec: str | None = None
    sort: Sort | None = None
    limit: int = DEFAULT_LIMIT


@dataclass(frozen=True, slots=True)
class _Reply:
    """A provider's offers; `left_out`: how many of them could not be read."""

    offers: Sequence[Offer] = ()
    left_out: int = 0
    error: CloudError | None = None

    @property
    def shortfall(self) -> str | None:
        """Why it has no offers, or fewer than it could have."""
        if self.error is not None:
            return f"{self.error.code}: {self.error.message} {self.error.fix}"
        return f"{self.left_out} of its offers can't be read" if self.left_out else None


async def list_offers(
    workspace: Workspace, query: OffersQuery, factory: CloudFactory | None = None
) -> OffersAnswer:
    """What can be rented now, by price or by the cost of a billion of a spec's tokens.

    A provider that can't be asked is named in `not_asked`, as long as another one answers.

    Raises:
        UsageError: `CLOUD_UNKNOWN`, `BAD_ARGUMENT`.
        CloudError: `CLOUD_KEY_MISSING` if no provider has a key; the error of the named provider,
            or the first error if none answers.
        TrainmasterError: the spec can't be used.
    """
    sort = _sort(query)
    names = _names(query.provider)
    prices = await prices_for(workspace, query.spec) if query.spec is not None else None
    wanted = _normalized(query.wanted)
    replies = await _ask_all(names, wanted, cloud_factory(workspace, factory))
    refused = {name: reply.error for name, reply in replies.items() if reply.error is not None}
    if len(refused) == len(names):
        raise _all_failed(refused)
    return _answer(replies, query, prices, sort)


async def offered_now(
    workspace: Workspace, wanted: Wanted, factory: CloudFactory | None = None
) -> list[Offer]:
    """The offers of every provider that answers.

    Raises:
        CloudError: as `list_offers`.
    """
    replies = await _ask_all(CLOUD_NAMES, _normalized(wanted), cloud_factory(workspace, factory))
    refused = {name: reply.error for name, reply in replies.items() if reply.error is not None}
    if len(refused) == len(CLOUD_NAMES):
        raise _all_failed(refused)
    return [offer for reply in replies.values() for offer in reply.offers]


async def find_offer(
    workspace: Workspace, name: str, wanted: Wanted = ANYTHING, factory: CloudFactory | None = None
) -> Offer:
    """The offer that `list_offers` named `name`, at its current price with the disk of `wanted`.
    The other fields of `wanted` select the alternatives in `OFFER_UNKNOWN`.

    Raises:
        UsageError: `CLOUD_UNKNOWN`.
        CloudError: `OFFER_UNKNOWN`, with alternatives; errors of the provider.
    """
    provider, _, offer_id = name.partition(":")
    _names(provider)
    cloud = cloud_factory(workspace, factory)(provider)
    wanted = _normalized(wanted)
    try:
        listed_offer = await with_timeout(cloud.name, cloud.offer(offer_id, wanted.disk_gib))
        if listed_offer is not None and listed_offer.is_plain:
            return listed_offer
        raise _unknown(name, await with_timeout(cloud.name, cloud.offers(wanted)))
    finally:
        await cloud.disconnect()


def _sort(query: OffersQuery) -> Sort:
    if query.sort == "value" and query.spec is None:
        raise UsageError(
            "BAD_ARGUMENT",
            "Sorting by value needs a spec.",
            f"Give the spec ({option('--spec', 'SPEC')}), or sort by price.",
            field="sort",
        )
    return query.sort or ("price" if query.spec is None else "value")


def _names(provider: str | None) -> Sequence[str]:
    if provider is None:
        return CLOUD_NAMES
    if provider not in CLOUD_NAMES:
        raise UsageError(
            "CLOUD_UNKNOWN",
            f"{provider!r} is not a known provider.",
            f"Use one of {', '.join(CLOUD_NAMES)}; an offer is named PROVIDER:ID, as `offers` "
            "lists it.",
            field="provider",
        )
    return (provider,)


def _normalized(wanted: Wanted) -> Wanted:
    """With the GPU's name from the table of GPUs (`H100 SXM` is `h100`) and the default disk, which
    is part of the price."""
    disk_gib = DEFAULT_DISK_GIB if wanted.disk_gib is None else wanted.disk_gib
    gpu_model = None if wanted.gpu is None else find_gpu(wanted.gpu)
    gpu = wanted.gpu if gpu_model is None else gpu_model.name
    return replace(wanted, gpu=gpu and gpu.lower(), disk_gib=disk_gib)


async def _ask_all(names: Sequence[str], wanted: Wanted, clouds: CloudFactory) -> dict[str, _Reply]:
    return dict(
        zip(
            names,
            await asyncio.gather(*(_ask(name, wanted, clouds) for name in names)),
            strict=True,
        )
    )


async def _ask(name: str, wanted: Wanted, clouds: CloudFactory) -> _Reply:
    try:
        cloud = clouds(name)
    except CloudError as error:
        return _Reply(error=error)
    try:
        offers = await with_timeout(name, cloud.offers(wanted))
        plain = [offer for offer in offers if offer.is_plain]
        return _Reply(plain, cloud.left_out + len(offers) - len(plain))
    except CloudError as error:
        return _Reply(error=error)
    finally:
        await cloud.disconnect()


def _all_failed(refused: Mapping[str, CloudError]) -> CloudError:
    if len(refused) > 1 and all(error.code == "CLOUD_KEY_MISSING" for error in refused.values()):
        fixes = " ".join(error.fix for error in refused.values())
        return CloudError(
            "CLOUD_KEY_MISSING",
            f"No provider has a key: {', '.join(KEY_NAMES.values())} are not set.",
            f"One is enough. {fixes}",
        )
    return next(
        (error for error in refused.values() if error.code != "CLOUD_KEY_MISSING"),
        next(iter(refused.values())),
    )


def _answer(
    replies: Mapping[str, _Reply], query: OffersQuery, prices: Prices | None, sort: Sort
) -> OffersAnswer:
    offers = [offer for reply in replies.values() for offer in reply.offers]
    token_prices = {offer.name: prices.usd_per_btok(offer) for offer in offers} if prices else {}

    def rank(offer: Offer) -> tuple[bool, float, float, str]:
        by_value = token_prices.get(offer.name) if sort == "value" else 0.0
        return by_value is None, by_value or 0.0, offer.usd_per_h, offer.name

    ordered = sorted(offers, key=rank)
    shown = ordered[: query.limit]
    return OffersAnswer(
        offers=_columns(shown, token_prices if prices else None),
        sources={offer.provider: offer.source for offer in offers},
        not_asked={name: reply.shortfall for name, reply in replies.items() if reply.shortfall}
        or None,
        more=len(ordered) - len(shown) or None,
        spec_problem=_problem(prices, token_prices),
        next_step=_next_step(shown, token_prices, prices),
    )


def _columns(
    offers: Sequence[Offer], token_prices: Mapping[str, float | None] | None
) -> OfferColumns:
    return OfferColumns(
        offer=[offer.name for offer in offers],
        gpu=[offer.gpu for offer in offers],
        count=[offer.count for offer in offers],
        gpu_memory_gib=[offer.gpu_memory_gib for offer in offers],
        cpu_cores=[offer.cpu_cores for offer in offers],
        memory_gib=[offer.memory_gib for offer in offers],
        disk_gib=[offer.disk_gib for offer in offers],
        usd_per_h=[round(offer.usd_per_h, 4) for offer in offers],
        usd_per_btok=None
        if token_prices is None
        else [token_prices[offer.name] for offer in offers],
        region=[offer.region for offer in offers],
        interruptible=[offer.interruptible for offer in offers],
        priced_at=[in_utc(offer.priced_t) for offer in offers],
    )


def _next_step(
    shown: Sequence[Offer], token_prices: Mapping[str, float | None], prices: Prices | None
) -> str:
    if not shown:
        return (
            "No offer matches. Try another GPU, fewer GPUs, a higher price, or interruptible "
            "offers."
        )
    if _problem(prices, token_prices) is not None:
        return (
            "The spec fits none of them: fix what `spec_problem` names, or request larger machines."
        )
    first = shown[0].name
    if prices is None:
        return f"Rent the first: {command('provision', first, '--hours', 'H')}."
    rent = command("provision", first, "--hours", "H", "--spec", "SPEC")
    return (
        f"{command('rehearse', 'SPEC')} first tries it at a tiny width, at no cost. Then rent the "
        f"first: {rent}."
    )


def _problem(prices: Prices | None, token_prices: Mapping[str, float | None]) -> str | None:
    """Why the spec fits no offer; may contain GPU names as providers write them."""
    if prices is None or prices.problem is None or any(token_prices.values()):
        return None
    return shown_text(prices.problem.encode(errors="replace"))


def _unknown(name: str, listed: Sequence[Offer]) -> CloudError:
    plain = {offer.name: offer for offer in listed if offer.is_plain}
    others = sorted(plain.values(), key=lambda listed_offer: listed_offer.usd_per_h)
    text = ", ".join(
        f"{offer.name} ({usd_text(offer.usd_per_h)}/h)" for offer in others[:_MAX_OTHERS]
    )
    return CloudError(
        "OFFER_UNKNOWN",
        f"{name} is not offered, or no longer.",
        f"Take another: {text}." if text else f"No similar offer exists; see {command('offers')}.",
        field="offer",
    )
