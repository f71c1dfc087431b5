"""The server over HTTP as a command: TLS, forms of both eras, and its end."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitRequestParams, ElicitResult
from support.mcp.certificates import self_made_certificate
from support.mcp.http_server import client_of, serving, settings, token_for
from support.mcp.mcp_client import answer_of, error_of
from support.providers.runpod_site import RunPodSite

from trainmaster.home.paths import Home
from trainmaster.machines.clouds import InstanceRequest, open_cloud
from trainmaster.settings.settings import read_settings

pytestmark = pytest.mark.slow

_TAG = "tm-abcdef-orphan"
_PATIENCE_S = 120


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    return self_made_certificate(tmp_path)


def test_the_command_serves_over_tls_until_it_is_ended(
    home: Path, certificate: tuple[Path, Path]
) -> None:
    token = token_for({"TRAINMASTER_HOME": str(home)}, "ann", "read")
    chain, key = map(str, certificate)
    served = subprocess.Popen(
        [
            *(sys.executable, "-m", "trainmaster", "mcp", "--http", "--port", "0"),
            *("--certificate", chain, "--key", key),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert served.stdout is not None

    async def scenario(url: str) -> None:
        trusting = ssl.create_default_context(cafile=chain)
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, verify=trusting, timeout=_PATIENCE_S) as http,
            Client(streamable_http_client(url, http_client=http), mode="legacy") as client,
        ):
            assert await answer_of(client, "list_runs") == {"runs": []}
            served.send_signal(signal.SIGTERM)  # while a session is open

    try:
        url = served.stdout.readline().strip()
        assert url.startswith("https://127.0.0.1:")
        anyio.run(scenario, url)
        assert served.wait(_PATIENCE_S) == 0
    finally:
        served.kill()
        served.wait()


@pytest.fixture
def site(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunPodSite]:
    """A RunPod stand-in with an instance of another home of the same account."""
    with RunPodSite() as site:
        site.modes.has_sshd = False
        settings(home, f"cloud_urls: {{runpod: {site.url}}}\n")
        monkeypatch.setenv("RUNPOD_API_KEY", site.account_key)
        anyio.run(rent, home)
        yield site


async def rent(home: Path) -> None:
    cloud = open_cloud("runpod", Home(home), read_settings(Home(home)), os.environ)
    offer = await cloud.offer("nvidia-geforce-rtx-4090:1x:community", 50)
    assert offer is not None
    await cloud.create(offer, InstanceRequest(_TAG, "ssh-ed25519 AAAA", 50, offer.usd_per_h))
    await cloud.disconnect()


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
def test_who_may_spend_agrees_to_a_release_by_a_form(
    site: RunPodSite, home: Path, era: str
) -> None:
    environment = {**os.environ, "TRAINMASTER_HOME": str(home)}
    tokens = {role: token_for(environment, role, role) for role in ("operate", "spend")}
    asked: list[str] = []

    async def agrees(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"agree": True})

    async def scenario() -> None:
        async with serving(environment) as url:
            options = {"era": era, "elicitation_callback": agrees}
            async with client_of(url, tokens["operate"], **options) as client:
                refused = await error_of(client, "release", instance=_TAG)
                assert refused.startswith("ROLE_TOO_LOW")
            assert len(site.alive) == 1
            assert asked == []
            async with client_of(url, tokens["spend"], **options) as client:
                assert (await answer_of(client, "release", instance=_TAG))["state"] == "ended"
            assert len(asked) == 1
            assert not site.alive

    anyio.run(scenario)
