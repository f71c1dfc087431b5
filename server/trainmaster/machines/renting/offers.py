"""What machines could be rented now: every provider that there is a key for, asked at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trainer_runtime.core.environment.gpus import find_gpu
from trainer_runtime.core.protocol.duration import in_utc
from trainer_runtime.core.protocol.text import shown as shown_text
from trainmaster.machines.clouds import KEY_NAMES, NAMES, Offer, Wanted
from trainmaster.machines.renting.factory import Opener, in_time, opener
from trainmaster.machines.renting.token_price import Prices, prices_for
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.rentals import OfferColumns, OffersAnswer
from trainmaster.words.errors import CloudError, UsageError

Sort = Literal["price", "value"]
DEFAULT_LIMIT = 20
# Of a box, where nobody says: an environment, data and a few checkpoints.
DEFAULT_DISK_GIB = 50.0
ANYTHING = Wanted()
_FEW = 5


@dataclass(frozen=True, slots=True)
class OffersQuery:
    """What is asked for, by whom, and how it is shown.

    `provider`: only this one. `spec`: a path or YAML text, for which tokens are priced. `sort`:
    None for `value` with a spec, `price` without.
    """

    wanted: Wanted = ANYTHING
    provider: str | None = None
    spec: str | None = None
    sort: Sort | None = None
    limit: int = DEFAULT_LIMIT


@dataclass(frozen=True, slots=True)
class _Heard:
    """What a provider said. `left_out`: offers of it that could not be read."""

    offers: Sequence[Offer] = ()
    left_out: int = 0
    error: CloudError | None = None

    @property
    def lacking(self) -> str | None:
        """Why there is nothing of it, or less than there might be."""
        if self.error is not None:
            return f"{self.error.code}: {self.error.message} {self.error.fix}"
        return f"{self.left_out} of its offers can't be read" if self.left_out else None


async def list_offers(
    workspace: Workspace, query: OffersQuery, opened: Opener | None = None
) -> OffersAnswer:
    """What could be rented now, cheapest first, or by what a billion of a spec's tokens would cost.

    A provider that can't be asked stands in `not_asked`, as long as another one answers. `opened`
    gives a provider's client by its name; None: the real ones.

    Raises:
        UsageError: `CLOUD_UNKNOWN`, `BAD_ARGUMENT`.
        CloudError: `CLOUD_KEY_MISSING` where no provider has a key; what one that was named says,
            or the first one where none gives an answer.
        TrainmasterError: the spec can't be used.
    """
    sort = _sort(query)
    names = _names(query.provider)
    prices = await prices_for(workspace, query.spec) if query.spec is not None else None
    wanted = _as_asked(query.wanted)
    heard = await _ask_all(names, wanted, opener(workspace, opened))
    refused = {name: one.error for name, one in heard.items() if one.error is not None}
    if len(refused) == len(names):
        raise _nobody(refused)
    return _answer(heard, query, prices, sort)


async def find_offer(
    workspace: Workspace, name: str, wanted: Wanted = ANYTHING, opened: Opener | None = None
) -> Offer:
    """The offer that `list_offers` called `name`, as its provider tells it now; of `wanted`, the
    disk counts, and for others that are there all of it.

    Raises:
        UsageError: `CLOUD_UNKNOWN`.
        CloudError: `OFFER_UNKNOWN`, with others that are there; whatever the provider says.
    """
    provider, _, offer_id = name.partition(":")
    _names(provider)
    cloud = opener(workspace, opened)(provider)
    wanted = _as_asked(wanted)
    try:
        found = await in_time(cloud.name, cloud.offer(offer_id, wanted.disk_gib))
        if found is not None:
            return found
        raise _unknown(name, await in_time(cloud.name, cloud.offers(wanted)))
    finally:
        await cloud.disconnect()


def _sort(query: OffersQuery) -> Sort:
    if query.sort == "value" and query.spec is None:
        raise UsageError(
            "BAD_ARGUMENT",
            "Offers are sorted by value for a spec, and none is given.",
            "Name the spec (`--spec SPEC`), or sort by price.",
            field="sort",
        )
    return query.sort or ("price" if query.spec is None else "value")


def _names(provider: str | None) -> Sequence[str]:
    if provider is None:
        return NAMES
    if provider not in NAMES:
        raise UsageError(
            "CLOUD_UNKNOWN",
            f"No provider is called {provider!r}.",
            f"There are {', '.join(NAMES)}; an offer is named PROVIDER:ID, as offers are listed.",
            field="provider",
        )
    return (provider,)


def _as_asked(wanted: Wanted) -> Wanted:
    """`H100 SXM` and the like as the table of GPUs has them, others as providers write them; and
    with the disk that a box is given, since that costs too."""
    disk_gib = DEFAULT_DISK_GIB if wanted.disk_gib is None else wanted.disk_gib
    known = None if wanted.gpu is None else find_gpu(wanted.gpu)
    gpu = wanted.gpu if known is None else known.name
    return replace(wanted, gpu=gpu and gpu.lower(), disk_gib=disk_gib)


async def _ask_all(names: Sequence[str], wanted: Wanted, opened: Opener) -> dict[str, _Heard]:
    return dict(
        zip(
            names,
            await asyncio.gather(*(_ask(name, wanted, opened) for name in names)),
            strict=True,
        )
    )


async def _ask(name: str, wanted: Wanted, opened: Opener) -> _Heard:
    try:
        cloud = opened(name)
    except CloudError as error:
        return _Heard(error=error)
    try:
        return _Heard(await in_time(name, cloud.offers(wanted)), cloud.left_out)
    except CloudError as error:
        return _Heard(error=error)
    finally:
        await cloud.disconnect()


def _nobody(refused: Mapping[str, CloudError]) -> CloudError:
    if len(refused) > 1 and all(one.code == "CLOUD_KEY_MISSING" for one in refused.values()):
        wanted = " ".join(one.fix for one in refused.values())
        return CloudError(
            "CLOUD_KEY_MISSING",
            f"There is no key for any provider: {', '.join(KEY_NAMES.values())} are not set.",
            f"One is enough. {wanted}",
        )
    return next(
        (one for one in refused.values() if one.code != "CLOUD_KEY_MISSING"),
        next(iter(refused.values())),
    )


def _answer(
    heard: Mapping[str, _Heard], query: OffersQuery, prices: Prices | None, sort: Sort
) -> OffersAnswer:
    found = [offer for one in heard.values() for offer in one.offers]
    of_tokens = {offer.name: prices.usd_per_btok(offer) for offer in found} if prices else {}

    def place(offer: Offer) -> tuple[bool, float, float, str]:
        by_value = of_tokens.get(offer.name) if sort == "value" else 0.0
        return by_value is None, by_value or 0.0, offer.usd_per_h, offer.name

    ordered = sorted(found, key=place)
    shown = ordered[: query.limit]
    return OffersAnswer(
        offers=_columns(shown, of_tokens if prices else None),
        sources={offer.provider: offer.source for offer in found},
        not_asked={name: one.lacking for name, one in heard.items() if one.lacking} or None,
        more=len(ordered) - len(shown) or None,
        spec_problem=_problem(prices, of_tokens),
        next_step=_next_step(shown, of_tokens, prices),
    )


def _columns(offers: Sequence[Offer], of_tokens: Mapping[str, float | None] | None) -> OfferColumns:
    return OfferColumns(
        offer=[offer.name for offer in offers],
        gpu=[offer.gpu for offer in offers],
        count=[offer.count for offer in offers],
        gpu_memory_gib=[offer.gpu_memory_gib for offer in offers],
        cpu_cores=[offer.cpu_cores for offer in offers],
        memory_gib=[offer.memory_gib for offer in offers],
        disk_gib=[offer.disk_gib for offer in offers],
        usd_per_h=[round(offer.usd_per_h, 4) for offer in offers],
        usd_per_btok=None if of_tokens is None else [of_tokens[offer.name] for offer in offers],
        region=[offer.region for offer in offers],
        interruptible=[offer.interruptible for offer in offers],
        priced_at=[in_utc(offer.priced_t) for offer in offers],
    )


def _next_step(
    shown: Sequence[Offer], of_tokens: Mapping[str, float | None], prices: Prices | None
) -> str:
    if not shown:
        return (
            "Nothing like this is to be had now: ask for another GPU, for fewer of them, or a "
            "higher price, and for interruptible ones."
        )
    if _problem(prices, of_tokens) is not None:
        return "None of them carries the spec: `spec_problem` says why; mend it, or ask for more."
    return "Rent one: `trainmaster provision OFFER --hours H`."


def _problem(prices: Prices | None, of_tokens: Mapping[str, float | None]) -> str | None:
    """Why no offer carries the spec. Names GPUs as their providers do."""
    if prices is None or prices.problem is None or any(of_tokens.values()):
        return None
    return shown_text(prices.problem.encode(errors="replace"))


def _unknown(name: str, listed: Sequence[Offer]) -> CloudError:
    others = sorted({offer.name: offer for offer in listed}.values(), key=lambda one: one.usd_per_h)
    told = ", ".join(f"{offer.name} ({offer.usd_per_h:.2f} $/h)" for offer in others[:_FEW])
    return CloudError(
        "OFFER_UNKNOWN",
        f"{name} is not offered, or not any more.",
        f"Take another: {told}." if told else "See `trainmaster offers`: nothing like it is there.",
        field="offer",
    )
