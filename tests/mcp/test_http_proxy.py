"""Behind a reverse proxy: whose word on a client's address counts, and under which path it is."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import httpx2
import pytest
from support.mcp.http_server import answered, client_of, serving, settings, token_for
from support.mcp.mcp_client import answer_of

from trainmaster.home.paths import Home

_PUBLIC = "https://train.example.org/trainmaster/mcp"


@pytest.mark.parametrize(
    ("proxies", "address"), [("[127.0.0.1]", "203.0.113.9"), ("[10.0.0.0/8]", "127.0.0.1")]
)
def test_only_a_named_proxy_is_believed(home: Path, proxies: str, address: str) -> None:
    environment = {"TRAINMASTER_HOME": str(home)}
    settings(home, f"server: {{url: '{_PUBLIC}', proxies: {proxies}}}\n")
    token = token_for(environment, "ann", "read")
    forwarded = {
        "X-Forwarded-For": "203.0.113.9",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "evil.example",
    }

    async def scenario() -> None:
        async with (
            serving(environment) as url,
            client_of(url, token, headers=forwarded) as client,
        ):
            await answer_of(client, "list_runs")

    anyio.run(scenario)
    (line,) = Home(home).action_log.read_text().splitlines()
    assert f"({address})" in json.loads(line)["client"]


def test_a_prefix_may_be_kept_or_stripped(home: Path) -> None:
    environment = {"TRAINMASTER_HOME": str(home)}
    settings(home, f"server: {{url: '{_PUBLIC}', proxies: [127.0.0.1]}}\n")
    token = token_for(environment, "ann", "read")

    async def scenario() -> None:
        async with serving(environment) as url:
            kept = str(httpx2.URL(url).copy_with(path="/trainmaster/mcp"))
            for at in (url, kept):
                named = {"host": "train.example.org", "origin": "https://train.example.org"}
                assert (await answered(at, token, named)).status_code == 200
            elsewhere = str(httpx2.URL(url).copy_with(path="/other"))
            assert (await answered(elsewhere, token)).status_code == 404

    anyio.run(scenario)


def test_pages_of_named_origins_may_read_answers(home: Path) -> None:
    environment = {"TRAINMASTER_HOME": str(home)}
    settings(home, "server: {origins: ['https://app.example.org']}\n")
    token_for(environment, "ann", "read")
    asked = {
        "origin": "https://app.example.org",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }

    async def scenario() -> None:
        async with serving(environment) as url, httpx2.AsyncClient() as http:
            allowed = await http.request("OPTIONS", url, headers=asked)
            assert allowed.status_code == 200
            assert allowed.headers["access-control-allow-origin"] == "https://app.example.org"
            refused = await http.request(
                "OPTIONS", url, headers={**asked, "origin": "https://evil.example"}
            )
            assert "access-control-allow-origin" not in refused.headers

    anyio.run(scenario)
