"""What destroys, through the server as a client starts it: who agrees, and who goes away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from mcp.client import ClientRequestContext
from mcp.types import ElicitRequestParams, ElicitResult
from support.mcp.mcp_client import answer_of, connected_over_stdio, error_of
from support.providers.runpod_site import RunPodSite
from support.session.tiers import at_length

from trainmaster.home.paths import Home
from trainmaster.machines.clouds import InstanceRequest, open_cloud
from trainmaster.settings.settings import read_settings

_TAG = "tm-abcdef-orphan"
_YES = ElicitResult(action="accept", content={"agree": True})


@pytest.fixture
def site(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunPodSite]:
    """A RunPod stand-in with an instance of another home of the same account."""
    with RunPodSite() as site:
        site.modes.has_sshd = False
        home.mkdir()
        (home / "settings.yaml").write_text(f"cloud_urls: {{runpod: {site.url}}}\n")
        monkeypatch.setenv("RUNPOD_API_KEY", site.account_key)
        anyio.run(rent, home)
        yield site


async def rent(home: Path) -> None:
    cloud = open_cloud("runpod", Home(home), read_settings(Home(home)), os.environ)
    offer = await cloud.offer("nvidia-geforce-rtx-4090:1x:community", 50)
    assert offer is not None
    await cloud.create(offer, InstanceRequest(_TAG, "ssh-ed25519 AAAA", 50, offer.usd_per_h))
    await cloud.disconnect()


@pytest.mark.slow
@pytest.mark.parametrize("era", ["2026-07-28", *at_length("legacy")])
def test_only_a_yes_ends_an_instance(site: RunPodSite, home: Path, era: str) -> None:
    environment = {"TRAINMASTER_HOME": str(home)}
    asked: list[str] = []

    async def thinks(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        await anyio.sleep_forever()
        raise AssertionError

    async def agrees(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return _YES

    async def goes_away() -> None:
        async with (
            connected_over_stdio(environment, era, elicitation_callback=thinks) as client,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(client.call_tool, "release", {"instance": _TAG})
            with anyio.fail_after(60):
                while not asked:
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()

    async def scenario() -> None:
        await goes_away()
        assert len(site.alive) == 1
        async with connected_over_stdio(environment, era, elicitation_callback=agrees) as client:
            served = {tool.name for tool in (await client.list_tools()).tools}
            assert {"list_offers", "provision", "release"} <= served
            assert (await error_of(client, "release", instance="unknown")).startswith(
                "INSTANCE_UNKNOWN: "
            )
            assert len(site.alive) == 1
            assert (await answer_of(client, "release", instance=_TAG))["state"] == "ended"

    anyio.run(scenario)
    assert site.alive == []
    assert len(asked) == 2 and all("another home" in question for question in asked)
