"""The providers' own APIs, asked for what costs and changes nothing: offers, and what is rented."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

import pytest

from trainmaster.errors.errors import CloudError
from trainmaster.home.paths import Home
from trainmaster.machines.clouds import Instance, Offer, Wanted, open_cloud
from trainmaster.settings.clouds import CLOUD_NAMES, KEY_NAMES
from trainmaster.settings.settings import read_settings


@pytest.mark.parametrize("provider", CLOUD_NAMES)
def test_a_provider_reports_its_offers_and_the_accounts_instances(
    provider: str, needs: Callable[[str, list[str]], None], real_home: Home
) -> None:
    needs(KEY_NAMES[provider], _key_places(provider, real_home))
    offers, left_out, instances = asyncio.run(_asked(provider, real_home))
    assert offers, "nothing at all is free: is that so on the provider's own page?"
    # A changed API shows itself here: what can't be read is left out.
    assert left_out <= len(offers)
    for offer in offers:
        assert offer.provider == provider and offer.count >= 1
        assert 0.01 < offer.usd_per_h < 500
    assert all(instance.provider_id for instance in instances)


async def _asked(provider: str, home: Home) -> tuple[Sequence[Offer], int, Sequence[Instance]]:
    cloud = open_cloud(provider, home, read_settings(home), os.environ)
    try:
        return await cloud.offers(Wanted()), cloud.left_out, await cloud.instances()
    finally:
        await cloud.disconnect()


def _key_places(provider: str, home: Home) -> list[str]:
    """Where its key was found; none where there is none."""
    try:
        open_cloud(provider, home, read_settings(home), os.environ)
    except CloudError as error:
        if error.code != "CLOUD_KEY_MISSING":
            raise
        return []
    return [KEY_NAMES[provider]]
