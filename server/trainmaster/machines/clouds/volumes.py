"""Network volumes of providers that may have none, or whose volumes can't be quoted."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.errors.errors import CloudError
from trainmaster.machines.clouds.cloud import Cloud, Volume

UNSUPPORTED = "VOLUME_UNSUPPORTED"


async def listed_volumes(cloud: Cloud) -> Sequence[Volume]:
    """All volumes at a provider; none where it has no volumes.

    Raises:
        CloudError: as `Cloud.instances`.
    """
    try:
        store = cloud.volume_store()
    except CloudError as error:
        if error.code != UNSUPPORTED:
            raise
        return []
    return await store.volumes()


def unsupported(
    provider: str, why: str, take: str = "an offer of a provider that has them (docs/renting.md)"
) -> CloudError:
    return CloudError(
        UNSUPPORTED,
        f"No volume can be attached at {provider}: {why}.",
        f"Take {take}, or rent without a volume: checkpoints are copied here all the same, and "
        "`keep` keeps the instance for further runs.",
        field="volume",
    )
