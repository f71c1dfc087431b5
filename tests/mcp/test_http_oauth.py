"""Tokens of an authorization server: which are accepted, and what clients learn."""

from __future__ import annotations

import json
import time
from pathlib import Path

import anyio
import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from mcp import Client
from mcp.client.auth import TokenStorage
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from support.mcp.authorization_server import CLIENT, AuthorizationServer, authorization_server
from support.mcp.http_server import answered, client_of, serving, settings, token_for
from support.mcp.mcp_client import answer_of, error_of

from trainmaster.home.paths import Home

_URL = "https://train.example.org/mcp"
_METADATA = "https://train.example.org/.well-known/oauth-protected-resource/mcp"


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    return {"TRAINMASTER_HOME": str(home)}


def configured(home: Path, server: AuthorizationServer, more: str = "") -> None:
    oauth = f"{{issuer: '{server.issuer}'{more}}}"
    settings(home, f"server: {{url: '{_URL}', oauth: {oauth}}}\n")


def test_a_client_finds_out_who_gives_tokens(environment: dict[str, str], home: Path) -> None:
    async def scenario() -> None:
        async with authorization_server() as issuing:
            configured(home, issuing)
            async with serving(environment) as url:
                refused = await answered(url)
                assert refused.status_code == 401
                challenge = refused.headers["www-authenticate"]
                assert f'resource_metadata="{_METADATA}"' in challenge
                assert 'scope="trainmaster:read"' in challenge
                assert "error=" not in challenge  # RFC 6750: no credentials, no error
                assert (
                    'error="invalid_token"'
                    in (await answered(url, "x")).headers["www-authenticate"]
                )
                path = httpx2.URL(_METADATA).path
                async with httpx2.AsyncClient() as http:
                    found = (await http.get(str(httpx2.URL(url).copy_with(path=path)))).json()
                assert found["resource"] == _URL
                assert found["authorization_servers"] == [issuing.issuer]
                scopes = [f"trainmaster:{role}" for role in ("read", "operate", "spend")]
                assert found["scopes_supported"] == scopes
                assert found["bearer_methods_supported"] == ["header"]

    anyio.run(scenario)


@pytest.mark.attack
def test_only_tokens_for_this_server_of_this_issuer_count(
    environment: dict[str, str], home: Path
) -> None:
    async def scenario() -> None:
        async with authorization_server() as issuing:
            configured(home, issuing)
            now = int(time.time())
            foreign = ec.generate_private_key(ec.SECP256R1())
            scope = {"scope": "openid trainmaster:read"}
            good = issuing.token(aud=_URL, **scope)
            head, claims, _ = good.split(".")
            wrong = {
                "no audience": issuing.token(**scope),
                "another audience": issuing.token(aud="https://other.example.org/mcp", **scope),
                "audience with a slash": issuing.token(aud=f"{_URL}/", **scope),
                "another issuer": issuing.token(aud=_URL, iss="https://evil.example", **scope),
                "expired": issuing.token(aud=_URL, exp=now - 3600, **scope),
                "without end": issuing.token(aud=_URL, exp=None, **scope),
                "not yet": issuing.token(aud=_URL, nbf=now + 3600, **scope),
                "another key": issuing.token(aud=_URL, key=foreign, **scope),
                "a shared secret": issuing.token(
                    aud=_URL, key="s" * 64, algorithm="HS256", **scope
                ),
                "unsigned": f"{head}.{claims}.",
                "no token": "a.b.c",
            }
            async with serving(environment) as url:
                for why, token in wrong.items():
                    assert (await answered(url, token)).status_code == 401, why
                several = issuing.token(aud=["x", _URL], scp=["trainmaster:read"])
                assert (await answered(url, several)).status_code == 200
                assert (await answered(url, good)).status_code == 200
                for scopes in ("openid", 7, {"trainmaster:read": 1}, None):
                    powerless = await answered(url, issuing.token(aud=_URL, scope=scopes))
                    assert powerless.status_code == 403
                    assert 'error="insufficient_scope"' in powerless.headers["www-authenticate"]
                own = token_for(environment, "ben", "spend")
                assert (await answered(url, own)).status_code == 200
            assert issuing.asked == ["/.well-known/openid-configuration", "/keys"]

    anyio.run(scenario)


def test_scopes_give_roles_and_the_subject_is_logged(
    environment: dict[str, str], home: Path
) -> None:
    async def scenario() -> None:
        async with authorization_server() as issuing:
            configured(home, issuing, ", scopes: {see: read, train: operate}")
            token = issuing.token(aud=_URL, scope="see train")
            async with serving(environment) as url, client_of(url, token) as client:
                await answer_of(client, "list_runs")
                text = await error_of(client, "provision", offer="x", hours=1)
                assert text.startswith("ROLE_TOO_LOW")

    anyio.run(scenario)
    rows = [json.loads(line) for line in Home(home).action_log.read_text().splitlines()]
    assert [(row["user"], row["outcome"]) for row in rows] == [
        ("oauth:ann", "ok"),
        ("oauth:ann", "ROLE_TOO_LOW"),
    ]


class Kept(TokenStorage):
    """What a client keeps: nothing, for it asks once."""

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        pass

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        pass


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
def test_the_official_client_finds_its_way_to_a_token(
    environment: dict[str, str], home: Path, era: str
) -> None:
    """By the 401 alone: metadata of the resource, then of the issuer, a token, and the call."""

    async def scenario() -> None:
        async with authorization_server() as issuing:
            settings(home, f"server: {{oauth: {{issuer: '{issuing.issuer}'}}}}\n")
            async with serving(environment) as url:
                signing_in = ClientCredentialsOAuthProvider(
                    url, Kept(), *CLIENT, issuer=issuing.issuer
                )
                async with (
                    httpx2.AsyncClient(auth=signing_in, timeout=60) as http,
                    Client(streamable_http_client(url, http_client=http), mode=era) as client,
                ):
                    assert await answer_of(client, "list_runs") == {"runs": []}
                    refused = await error_of(client, "stop", run_id="x")
                    assert refused.startswith("ROLE_TOO_LOW")  # the challenge names the least scope
            assert issuing.asked.count("/token") == 1

    anyio.run(scenario)
    assert '"user":"oauth:robot"' in Home(home).action_log.read_text()


def test_an_authorization_server_that_does_not_answer_is_said_so(
    environment: dict[str, str], home: Path
) -> None:
    async def scenario() -> None:
        async with authorization_server() as issuing:
            configured(home, issuing, f", jwks_url: '{issuing.issuer}/keys'")
            token = issuing.token(aud=_URL, scope="trainmaster:read")
            async with serving(environment) as url:
                issuing.is_broken = True
                refused = await answered(url, token)
                assert refused.status_code == 503
                assert refused.headers["retry-after"] == "10"
                assert refused.json()["error"]["data"]["code"] == "AUTHORIZATION_UNREACHABLE"
                issuing.is_broken = False
                assert (await answered(url, token)).status_code == 503  # not asked again at once
                with anyio.fail_after(60):
                    while (await answered(url, token)).status_code == 503:
                        await anyio.sleep(0.1)
                assert (await answered(url, token)).status_code == 200
                issuing.roll_keys("second")  # unknown: not asked for again at once
                new = issuing.token(aud=_URL, scope="trainmaster:read")
                assert (await answered(url, new)).status_code == 401
            assert issuing.asked == ["/keys", "/keys"]

    anyio.run(scenario)


def test_the_issuer_is_asked_about_opaque_tokens(environment: dict[str, str], home: Path) -> None:
    async def scenario() -> None:
        async with authorization_server() as issuing:
            where = f"{issuing.issuer}/introspect"
            more = f", introspection_url: '{where}', client_id: {CLIENT[0]}, client_secret: RS"
            configured(home, issuing, more)
            known = {"active": True, "scope": "trainmaster:operate", "client_id": "bot"}
            issuing.opaque = {
                "good": {**known, "aud": [_URL]},
                "foreign": {**known, "aud": "https://other.example.org/mcp"},
                "unbound": known,
                "spent": {**known, "aud": _URL, "exp": time.time() - 3600},
                "false": {**known, "aud": _URL, "iss": "https://evil.example"},
            }
            async with serving({**environment, "RS": CLIENT[1]}) as url:
                codes = {
                    token: (await answered(url, token)).status_code
                    for token in (*issuing.opaque, "unknown", "good")
                }
            assert codes == {"good": 200} | dict.fromkeys(
                ("foreign", "unbound", "spent", "false", "unknown"), 401
            )
            assert issuing.asked.count("/introspect") == 6

    anyio.run(scenario)
