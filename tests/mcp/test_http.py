"""The server over HTTP: who may do what, and what of it is on record."""

from __future__ import annotations

import json
import socket
import time
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import MCPError
from mcp.client import ClientRequestContext
from mcp.types import ElicitRequestParams, ElicitResult
from support.mcp.http_server import answered, client_of, serving, settings, token_for
from support.mcp.mcp_client import answer_of, error_of

from trainmaster.home.paths import Home
from trainmaster.mcp.http.serve import Listening, bound_server
from trainmaster.mcp.toolsets import TOOLSETS, chosen_tools
from trainmaster.settings.roles import ROLES
from trainmaster.store.access_tokens import remove_token

_ERAS = pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
_ALL = [one.name for tools in TOOLSETS.values() for one in tools]
_READING = [one.name for one in chosen_tools(read_only=True)]


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    home.mkdir(mode=0o700)
    return {"TRAINMASTER_HOME": str(home)}


def logged(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Home(home).action_log.read_text().splitlines()]


@_ERAS
def test_a_role_is_offered_its_tools_and_refused_the_others(
    environment: dict[str, str], era: str
) -> None:
    tokens = {role: token_for(environment, role, role) for role in ROLES}

    async def scenario() -> None:
        async with serving(environment) as url:
            offered = {}
            for role, token in tokens.items():
                async with client_of(url, token, era) as client:
                    offered[role] = [tool.name for tool in (await client.list_tools()).tools]
                    if era == "legacy":  # the other asks for none
                        assert ("read-only" in str(client.instructions)) == (role == "read")
                        assert "shell" not in str(client.instructions)
            assert offered["read"] == _READING
            assert set(_ALL) - set(offered["operate"]) == {"provision", "release"}
            assert offered["spend"] == _ALL
            async with client_of(url, tokens["read"], era) as client:
                assert (await answer_of(client, "list_runs"))["runs"] == []
                text = await error_of(client, "stop", run_id="x")
                assert text.startswith("ROLE_TOO_LOW: stop needs the role 'operate'")
            async with client_of(url, tokens["operate"], era) as client:
                assert (await error_of(client, "stop", run_id="x")).startswith("RUN_NOT_FOUND")
                refused = await error_of(client, "provision", offer="x", hours=1)
                assert refused.startswith("ROLE_TOO_LOW: provision needs the role 'spend'")

    anyio.run(scenario)


@_ERAS
def test_each_call_is_logged_with_user_client_action_and_outcome(
    environment: dict[str, str], home: Path, era: str
) -> None:
    ann, ben = (token_for(environment, name, "operate") for name in ("ann", "ben"))

    async def scenario() -> None:
        async with serving(environment) as url:
            async with client_of(url, ann, era) as client:
                await answer_of(client, "list_runs")
                await error_of(client, "provision", offer="x", hours=1)
                await error_of(client, "stop", runid="misspelt")
            async with client_of(url, ben, era) as client:
                await error_of(client, "stop", run_id="no-such-run")

    anyio.run(scenario)
    rows = logged(home)
    assert [(row["user"], row["action"], row["outcome"]) for row in rows] == [
        ("ann", "list_runs", "ok"),
        ("ann", "provision", "ROLE_TOO_LOW"),
        ("ann", "stop", "BAD_ARGUMENT"),
        ("ben", "stop", "RUN_NOT_FOUND"),
    ]
    assert rows[3]["target"] == {"run_id": "no-such-run"}
    assert all(row["face"] == "mcp" and "(127.0.0.1)" in row["client"] for row in rows)


@pytest.mark.attack
def test_only_tokens_that_count_are_let_in(environment: dict[str, str], home: Path) -> None:
    token = token_for(environment, "ann", "read")
    old = token_for(environment, "old", "spend", expires_t=time.time() - 1)

    async def scenario() -> None:
        async with serving(environment) as url:
            assert (await answered(url, token)).status_code == 200
            for wrong in (None, old, "tmk_made-up", "x" * 20_000, token[:-1]):
                refused = await answered(url, wrong)
                assert refused.status_code == 401
                assert refused.headers["www-authenticate"].startswith("Bearer")
                error = refused.json()["error"]
                assert error["data"]["code"] == "TOKEN_REFUSED"
                assert "mcp-tokens add" in error["message"]
            refusal = pytest.RaisesExc(MCPError, match="TOKEN_REFUSED: .* Fix: ")
            with pytest.RaisesGroup(refusal, flatten_subgroups=True, allow_unwrapped=True):
                async with client_of(url, "tmk_wrong", "legacy"):
                    pass
            remove_token(Home(home), "ann")
            assert (await answered(url, token)).status_code == 401
            Home(home).access_tokens.write_text("{}")
            unusable = await answered(url, token)
            assert (unusable.status_code, unusable.headers["retry-after"]) == (503, "10")
            assert unusable.json()["error"]["data"]["code"] == "TOKENS_NOT_READABLE"

    anyio.run(scenario)
    assert token not in Home(home).access_tokens.read_text()


@pytest.mark.attack
def test_a_session_belongs_to_the_token_that_began_it(environment: dict[str, str]) -> None:
    ann, ben = (token_for(environment, name, "read") for name in ("ann", "ben"))

    async def scenario() -> None:
        async with serving(environment) as url:
            opened = await answered(url, ann)
            session = {"mcp-session-id": opened.headers["mcp-session-id"]}
            listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
            assert (await answered(url, ann, session, listing)).status_code == 200
            assert (await answered(url, ben, session, listing)).status_code == 404

    anyio.run(scenario)


@pytest.mark.attack
def test_requests_that_name_another_server_or_come_from_a_page_are_refused(
    environment: dict[str, str], home: Path
) -> None:
    token = token_for(environment, "ann", "read")
    settings(home, "server: {origins: ['https://app.example.org']}\n")

    async def scenario() -> None:
        async with serving(environment) as url:
            own = url.removesuffix("/mcp")
            for headers, status in (
                ({"host": "evil.example"}, 421),
                ({"host": "127.0.0.1.evil.example:80"}, 421),
                ({"host": "localhost:1"}, 200),
                ({"origin": "http://evil.example"}, 403),
                ({"origin": "null"}, 403),
                ({"origin": own}, 200),
                ({"origin": "https://app.example.org"}, 200),
            ):
                got = await answered(url, token, headers)
                assert got.status_code == status, headers
                if status != 200:
                    assert got.json()["error"]["data"]["code"] == "ORIGIN_REFUSED"

    anyio.run(scenario)


@pytest.mark.attack
def test_a_token_that_asks_too_often_waits(environment: dict[str, str], home: Path) -> None:
    ann, ben = (token_for(environment, name, "read") for name in ("ann", "ben"))
    settings(home, "server: {requests_per_minute: 3}\n")

    async def scenario() -> None:
        async with serving(environment) as url:
            codes = [(await answered(url, ann)).status_code for _ in range(5)]
            assert codes[:3] == [200, 200, 200]
            assert 429 in codes
            assert (await answered(url, ben)).status_code == 200
            refused = await answered(url, ann)
            assert int(refused.headers["retry-after"]) >= 1
            error = refused.json()["error"]["data"]
            assert (error["code"], error["retryable"]) == ("CALL_LIMIT", True)

    anyio.run(scenario)


def test_answers_do_not_wait_for_acknowledgements(environment: dict[str, str]) -> None:
    """asyncio turns Nagle's algorithm off for sockets that name TCP only: 2 ms instead of 48."""

    async def scenario() -> None:
        token_for(environment, "ann", "read")
        async with bound_server(environment, Listening(port=0), chosen_tools()) as bound:
            assert bound.listener.proto == socket.IPPROTO_TCP

    anyio.run(scenario)


@pytest.mark.attack
def test_a_form_over_http_widens_no_policy(
    environment: dict[str, str], home: Path, tmp_path: Path
) -> None:
    """Who holds a token may be a program that answers its own forms."""
    token = token_for(environment, "ann", "spend")
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / "train.log").write_text("step 1 loss 2.0\n")
    asked = []

    async def agrees(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"agree": True})

    async def scenario() -> None:
        async with (
            serving(environment) as url,
            client_of(url, token, elicitation_callback=agrees) as client,
        ):
            added = {"name": "gpu1", "address": "me@gpu1.invalid"}
            text = await error_of(client, "add_host", **added)
            assert text.startswith("CONFIRMATION_REQUIRED")
            assert "Ask the server's owner to run `" in text

    anyio.run(scenario)
    assert asked == []


def test_the_read_role_reads_within_the_policy_of_a_reader(
    environment: dict[str, str], home: Path
) -> None:
    token = token_for(environment, "ann", "read")

    async def scenario() -> None:
        async with serving(environment) as url, client_of(url, token) as client:
            text = await error_of(client, "tail_log", run_id="/etc/passwd")
            assert text.startswith("POLICY_FILE")

    anyio.run(scenario)


def test_without_authorization_nobody_can_spend(environment: dict[str, str]) -> None:
    async def scenario() -> None:
        async with (
            serving(environment, authorized=False) as url,
            client_of(url) as client,
        ):
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert "launch" in names
            assert "provision" not in names

    anyio.run(scenario)


_ODD_BODIES = (
    b"",
    b"{",
    b"[]",
    b"null",
    b"[" * 5000,
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}',
    b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 9000 + b'"}',
    b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"ping"}',
    b"\xff\xfe\x00",
    b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
    b" " * (5 * 1024 * 1024),
)
_ODD_HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"mcp-protocol-version": "2026-07-28"},
    {"mcp-protocol-version": "x" * 3000},
    {"mcp-session-id": "../../etc"},
    {"content-type": "text/plain"},
    {"accept": "text/html"},
    {"content-length": "-1"},
)


@pytest.mark.attack
def test_no_request_that_makes_no_sense_is_a_defect(environment: dict[str, str]) -> None:
    token = token_for(environment, "ann", "read")
    authorization = {"Authorization": f"Bearer {token}"}

    async def scenario() -> None:
        async with serving(environment) as url, httpx2.AsyncClient(timeout=60) as http:
            for method, headers, body in product(
                ("POST", "PUT", "DELETE"), _ODD_HEADERS, _ODD_BODIES
            ):
                if "content-length" in headers and method != "POST":
                    continue
                sent = {"accept": "application/json, text/event-stream", **authorization}
                sent |= {"content-type": "application/json", **headers}
                try:
                    got = await http.request(method, url, headers=sent, content=body)
                except httpx2.TransportError:  # not HTTP: the connection ends
                    continue
                assert 200 <= got.status_code < 500, (method, headers, body[:60], got.text)
            assert (await answered(url, token)).status_code == 200

    anyio.run(scenario)
