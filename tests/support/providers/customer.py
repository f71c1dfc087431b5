"""A client of a stand-in provider, with a home and a key pair."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from support.backends.ssh_hosts import make_key
from support.providers.lambda_site import LambdaSite
from support.providers.runpod_site import RunPodSite
from support.providers.site import Site
from support.providers.vast_site import VastSite

from trainmaster.errors.errors import CloudError
from trainmaster.home.paths import Home
from trainmaster.machines.clouds import (
    Cloud,
    Instance,
    InstanceRequest,
    Offer,
    Wanted,
    open_cloud,
)
from trainmaster.machines.clouds.http import Pace
from trainmaster.settings.clouds import KEY_NAMES
from trainmaster.settings.settings import Settings

Answered = TypeVar("Answered")
SITES: dict[str, Callable[..., Site]] = {
    "runpod": RunPodSite,
    "vast": VastSite,
    "lambda": LambdaSite,
}
TAG = "tm-0a1b2c-abcdef"
DISK_GIB = 40
PACE = Pace(pauses_s=(0.0, 0.0))


class Customer:
    """Calls one client; a new one after `settings` or `environment` change."""

    def __init__(self, provider: str, site: Site, folder: Path) -> None:
        self.provider, self.site = provider, site
        self.home = Home(folder / "home")
        self.home.root.mkdir()
        self.settings = Settings.model_validate({"cloud_urls": {provider: site.url}})
        self.environment = {KEY_NAMES[provider]: site.account_key}
        self._private_key = folder / "id_ed25519"
        self._runner = asyncio.Runner()
        self._client: tuple[str, Cloud] | None = None

    def __enter__(self) -> Customer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._disconnect()
        self._runner.close()

    def __call__(self, ask: Callable[[Cloud], Awaitable[Answered]]) -> Answered:
        client = self.client()

        async def bounded() -> Answered:
            async with asyncio.timeout(60):
                return await ask(client)

        return self._runner.run(bounded())

    def client(self) -> Cloud:
        configuration = f"{self.settings} {self.environment}"
        if self._client is None or self._client[0] != configuration:
            self._disconnect()
            opened = open_cloud(self.provider, self.home, self.settings, self.environment, PACE)
            self._client = configuration, opened
        return self._client[1]

    def _disconnect(self) -> None:
        if self._client is not None:
            self._runner.run(self._client[1].disconnect())
            self._client = None

    def refused(self, ask: Callable[[Cloud], Awaitable[Any]]) -> CloudError:
        """The error of a call that must fail."""
        try:
            answer = self(ask)
        except CloudError as error:
            return error
        raise AssertionError(f"not refused: {answer!r}")

    @property
    def private_key(self) -> Path:
        if not self._private_key.exists():
            make_key(self._private_key)
        return self._private_key

    def offers(self, **wanted: Any) -> list[Offer]:
        return list(self(lambda cloud: cloud.offers(Wanted(**wanted))))

    def cheapest(self) -> Offer:
        return self.offers(gpu="h100", disk_gib=DISK_GIB)[0]

    def request(self, offer: Offer, **changes: Any) -> InstanceRequest:
        known: dict[str, Any] = {
            "tag": TAG,
            "public_key": self.private_key.with_suffix(".pub").read_text(),
            "disk_gib": DISK_GIB,
            "max_usd_per_h": offer.usd_per_h,
        }
        return InstanceRequest(**{**known, **changes})

    def create(self, offer: Offer | None = None, **changes: Any) -> str:
        chosen = offer or self.cheapest()
        request = self.request(chosen, **changes)
        return self(lambda cloud: cloud.create(chosen, request))

    def instances(self) -> list[Instance]:
        return list(self(lambda cloud: cloud.instances()))
