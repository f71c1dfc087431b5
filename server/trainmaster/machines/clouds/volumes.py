"""The port of network volumes: disks at a provider that outlive the instances they are attached to.

A provider without them, or whose volumes can't be quoted, gives a reason instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trainer_runtime.core.records import dataclass
from trainmaster.errors.errors import CloudError
from trainmaster.machines.clouds.cloud import Cloud, Offer

UNSUPPORTED = "VOLUME_UNSUPPORTED"


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume as its provider lists it. `tag`: its name there; `size_gb` in 10^9 bytes;
    `usd_per_h`: at most."""

    provider_id: str
    tag: str
    size_gb: float
    usd_per_h: float
    region: str


class VolumeStore(Protocol):
    """The volumes of one provider. Errors are those of `Cloud`; only `create` can't be repeated.

    `mount`: the folder of a volume on an instance. `least_gb`, `most_gb`: sizes of one.
    """

    mount: str
    least_gb: int
    most_gb: int

    def usd_per_h(self, size_gb: int) -> float:
        """The most that a volume of this size costs an hour, used or not."""

    async def region_for(self, offer: Offer, region: str | None) -> str:
        """The exact region for a new volume: one that has the offer free, within `region`.

        Raises:
            CloudError: `NO_CAPACITY`; `VOLUME_UNSUPPORTED`, this offer can't have one.
        """

    async def create(self, tag: str, size_gb: int, region: str) -> str:
        """Create a volume and return its id; sent once, as `Cloud.create`."""

    async def volumes(self) -> Sequence[Volume]:
        """All volumes of the account, also those of other tools."""

    async def end(self, provider_id: str) -> None:
        """Delete a volume and all data on it. Idempotent."""


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
