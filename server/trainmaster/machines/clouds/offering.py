"""Shared by all providers: filter and sort offers, name GPUs, refuse a higher price."""

from __future__ import annotations

import math
from collections.abc import Iterable

from trainer_runtime.core.environment.gpus import GPUS, find_gpu, gpu_label, slug
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import gib_text, usd_text
from trainmaster.errors.errors import CloudError
from trainmaster.machines.clouds.cloud import InstanceRequest, Offer, Wanted

GB_PER_GIB = 1.073741824
MIB_PER_GIB = 1024
_ROUNDING_USD = 1e-6
_KNOWN = frozenset(gpu.name for gpu in GPUS)


def fitting(offers: Iterable[Offer], wanted: Wanted) -> list[Offer]:
    """The offers that match, cheapest first."""
    fitting_offers = (offer for offer in offers if _fits(offer, wanted))
    return sorted(fitting_offers, key=lambda offer: (offer.usd_per_h, offer.offer_id))


def gpu_name(provider_name: str, memory_gib: float | None = None) -> str:
    """A GPU's name in `core.environment.gpus`, or the provider's name as a slug."""
    gpu_model = find_gpu(provider_name, memory_gib)
    return gpu_model.name if gpu_model else slug(provider_name)


def quoted_gpu(offer: Offer) -> str:
    """The GPU as a quote names it: `NVIDIA H100 with 80 GiB`.

    The provider's own words could say anything, so a model that the table lacks is called unknown,
    beside its slug.
    """
    memory = f" with {gib_text(offer.gpu_memory_gib)}" if offer.gpu_memory_gib else ""
    if offer.gpu in _KNOWN:
        return f"{gpu_label(offer.gpu)}{memory}"
    return f"GPU of an unknown model (`{gpu_label(offer.gpu)}`){memory}"


def dollars(usd_per_h: float) -> float:
    """A price rounded up to the millionth: agreement to it covers the exact price."""
    return math.ceil(usd_per_h * 1e6 - _ROUNDING_USD) / 1e6


def in_region(region: str | None, wanted: str | None) -> bool:
    """Whether a region such as `US-TX-3` lies in the wanted one, such as `us` or `us-tx`."""
    if wanted is None:
        return True
    return f"{slug(region or '')}-".startswith(f"{slug(wanted)}-")


def refuse_higher_price(usd_per_h: float, offer: Offer, request: InstanceRequest) -> None:
    """
    Raises:
        CloudError: `PRICE_ABOVE_QUOTE`.
    """
    if usd_per_h > request.max_usd_per_h + _ROUNDING_USD:
        raise CloudError(
            "PRICE_ABOVE_QUOTE",
            f"{offer.name} now costs {usd_text(usd_per_h)}/h; the quote was "
            f"{usd_text(request.max_usd_per_h)}.",
            f"List the offers again ({command('offers')}), and take one at its current price.",
        )


def no_capacity(offer: Offer, reason: str) -> CloudError:
    return CloudError(
        "NO_CAPACITY",
        f"{offer.provider} has no {offer.count} x {quoted_gpu(offer)} free: {reason}.",
        f"Take another offer ({command('offers')}), or try again later.",
        retryable=True,
    )


def _fits(offer: Offer, wanted: Wanted) -> bool:
    return (
        (wanted.gpu is None or offer.gpu == gpu_name(wanted.gpu))
        and offer.count == wanted.count
        and offer.interruptible == wanted.interruptible
        and (wanted.max_usd_h is None or offer.usd_per_h <= wanted.max_usd_h)
        and (wanted.disk_gib is None or (offer.disk_gib or wanted.disk_gib) >= wanted.disk_gib)
        and in_region(offer.region, wanted.region)
    )
