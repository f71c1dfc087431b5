"""A home whose provider is a stand-in, and the rental services with it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from support.providers.runpod_site import RunPodSite
from support.providers.site import Site
from support.runs.running_run import run_async

from trainmaster.answers.rentals import ProvisionAnswer, ReleaseAnswer
from trainmaster.errors.confirmation import agreed
from trainmaster.home.paths import HOME_VARIABLE
from trainmaster.machines.clouds import Offer, open_cloud
from trainmaster.machines.renting.provision import ProvisionRequest, provision
from trainmaster.machines.renting.release import release
from trainmaster.machines.renting.volume_request import new_tag
from trainmaster.settings.clouds import KEY_NAMES
from trainmaster.settings.settings import read_settings
from trainmaster.store.control.instances import (
    DEFAULT_TIMEOUTS,
    RentedInstance,
    RentState,
    RequestedInstance,
    Timeouts,
)
from trainmaster.sync.workspace import Workspace, open_workspace

Answered = TypeVar("Answered")
OFFERS = {
    "runpod": "runpod:nvidia-geforce-rtx-4090:1x:secure",
    "vast": "vast:4004",
    "lambda": "lambda:gpu_1x_a10",
}
READY_S = 240.0


class Renter:
    """The rental services, each call in a new workspace, as commands make them."""

    def __init__(self, home: Path, provider: str, site: Site) -> None:
        self.home, self.provider, self.site = home, provider, site
        home.mkdir(parents=True, exist_ok=True)
        (home / "settings.yaml").write_text(f"cloud_urls: {{{provider}: '{site.url}'}}\n")

    @property
    def environment(self) -> dict[str, str]:
        return {HOME_VARIABLE: str(self.home), KEY_NAMES[self.provider]: self.site.account_key}

    def do(self, work: Callable[[Workspace], Awaitable[Answered]]) -> Answered:
        async def within() -> Answered:
            with open_workspace(self.environment) as workspace:
                try:
                    return await work(workspace)
                finally:
                    await workspace.disconnect()

        return run_async(within)

    def provision(
        self, hours: float = 1.0, *, timeouts: Timeouts = DEFAULT_TIMEOUTS
    ) -> ProvisionAnswer:
        """Rent an instance and wait until it is ready."""
        request = ProvisionRequest(OFFERS[self.provider], hours, timeouts=timeouts)
        answer = self.do(
            lambda workspace: provision(
                workspace,
                request,
                confirm=agreed,
                wait_s=READY_S,
            )
        )
        assert answer.state == "ready", answer
        return answer

    def release(self, instance: str, *, force: bool = False) -> ReleaseAnswer:
        return self.do(
            lambda workspace: release(
                workspace, instance, confirm=agreed, force=force, wait_s=READY_S
            )
        )

    def instances(self) -> list[RentedInstance]:
        async def read(workspace: Workspace) -> list[RentedInstance]:
            return workspace.control.instances.all()

        return self.do(read)


@contextmanager
def renting(
    home: Path, site: Site, monkeypatch: pytest.MonkeyPatch, provider: str = "runpod"
) -> Iterator[Renter]:
    """Sets home and key in the environment, for processes that the services start."""
    renter = Renter(home, provider, site)
    for name, value in renter.environment.items():
        monkeypatch.setenv(name, value)
    yield renter


def silent_renter(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Renter]:
    """A renter whose instances have no sshd."""
    with RunPodSite() as site, renting(home, site, monkeypatch) as rented:
        site.modes.has_sshd = False
        yield rented


async def intended(workspace: Workspace, renter: Renter, timeouts: Mapping[str, float]) -> str:
    settings = read_settings(workspace.home)
    cloud = open_cloud("runpod", workspace.home, settings, renter.environment)
    try:
        offer = await cloud.offer(OFFERS["runpod"].partition(":")[2], 50)
    finally:
        await cloud.disconnect()
    assert offer is not None
    return workspace.control.instances.add(intent(workspace, offer, timeouts)).tag


def intent(workspace: Workspace, offer: Offer, timeouts: Mapping[str, float]) -> RentedInstance:
    now = time.time()
    return RentedInstance(
        tag=new_tag(workspace.control.instances.home_id()),
        host="gpu",
        provider="runpod",
        state=RentState.INTENDED,
        provider_id=None,
        intended_t=now,
        lease_end_t=now + 3600,
        usd_per_h=offer.usd_per_h,
        budget_usd=offer.usd_per_h,
        offer=offer.to_dict(),
        requested=RequestedInstance(50, offer.usd_per_h),
        timeouts=Timeouts(**timeouts),
    )
