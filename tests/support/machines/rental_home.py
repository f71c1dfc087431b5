"""What the tests of rented boxes share: a home whose provider is a stand-in, and its services."""

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

from trainmaster.machines.clouds import KEY_NAMES, Offer, open_cloud
from trainmaster.machines.renting.lifecycle import Bounds
from trainmaster.machines.renting.provision import provision
from trainmaster.machines.renting.release import release
from trainmaster.machines.renting.tags import new_tag
from trainmaster.store.control.instances import RentedBox, RentState
from trainmaster.sync.workspace import Workspace, open_workspace
from trainmaster.words.answers.rentals import ProvisionAnswer, ReleaseAnswer
from trainmaster.words.confirmation import agreed
from trainmaster.words.paths import HOME_VARIABLE
from trainmaster.words.settings import read_settings

Answered = TypeVar("Answered")
OFFERS = {
    "runpod": "runpod:nvidia-geforce-rtx-4090:1x:secure",
    "vast": "vast:4004",
    "lambda": "lambda:gpu_1x_a10",
}
READY_S = 240.0


class Renter:
    """The services, each in a workspace of its own, as a command would call them."""

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

    def provision(self, hours: float = 1.0, *, bounds: Bounds | None = None) -> ProvisionAnswer:
        """A box, once it is ready."""
        answer = self.do(
            lambda workspace: provision(
                workspace,
                OFFERS[self.provider],
                hours=hours,
                confirm=agreed,
                wait_s=READY_S,
                bounds=bounds,
            )
        )
        assert answer.state == "ready", answer
        return answer

    def release(self, box: str, *, force: bool = False) -> ReleaseAnswer:
        return self.do(
            lambda workspace: release(workspace, box, confirm=agreed, force=force, wait_s=READY_S)
        )

    def boxes(self) -> list[RentedBox]:
        async def read(workspace: Workspace) -> list[RentedBox]:
            return workspace.control.boxes.boxes()

        return self.do(read)


@contextmanager
def renting(
    home: Path, site: Site, monkeypatch: pytest.MonkeyPatch, provider: str = "runpod"
) -> Iterator[Renter]:
    """Also for processes that the services start: they find home and key in the environment."""
    renter = Renter(home, provider, site)
    for name, value in renter.environment.items():
        monkeypatch.setenv(name, value)
    yield renter


def silent_renter(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Renter]:
    """One whose boxes answer nobody: what is tried with it comes before that."""
    with RunPodSite() as site, renting(home, site, monkeypatch) as rented:
        site.modes.has_sshd = False
        yield rented


async def intended(workspace: Workspace, renter: Renter, bounds: Mapping[str, float]) -> str:
    settings = read_settings(workspace.home)
    cloud = open_cloud("runpod", workspace.home, settings, renter.environment)
    try:
        offer = await cloud.offer(OFFERS["runpod"].partition(":")[2], 50)
    finally:
        await cloud.disconnect()
    assert offer is not None
    return workspace.control.boxes.add(intent(workspace, offer, bounds)).tag


def intent(workspace: Workspace, offer: Offer, bounds: Mapping[str, float]) -> RentedBox:
    now = time.time()
    request = {"disk_gib": 50, "max_usd_per_h": offer.usd_per_h, "image": None, "region": None}
    return RentedBox(
        tag=new_tag(workspace.control.boxes.home_id()),
        host="gpu",
        provider="runpod",
        state=RentState.INTENDED,
        provider_id=None,
        intended_t=now,
        lease_end_t=now + 3600,
        usd_per_h=offer.usd_per_h,
        budget_usd=offer.usd_per_h,
        body={
            "offer": offer.to_dict(),
            "request": request,
            "own_timer": "",
            "ends_itself": False,
            "bounds": Bounds(**bounds).to_dict(),
        },
    )
