"""People are never one user, however alike their names are; and whose token goes where."""

from __future__ import annotations

import random
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from mcp.server.auth.middleware.bearer_auth import authorization_context
from support.attack.cases import attack_count, attack_random
from support.attack.served import HEADERS
from support.mcp.authorization_server import CLIENT, AuthorizationServer, authorization_server
from support.mcp.http_server import BEGIN, answered, serving, settings, token_for

from trainmaster.errors.errors import HostError
from trainmaster.home.paths import Home
from trainmaster.mcp.http.application import OpaqueTokens
from trainmaster.mcp.http.authentication import Identity
from trainmaster.mcp.http.authorization_server import (
    AuthorizationServer as AsksAuthorizationServer,
)
from trainmaster.mcp.http.claims import identity_of
from trainmaster.mcp.http.gate import sdk_user
from trainmaster.settings.server_settings import OAuthSettings
from trainmaster.store.access_tokens import add_token, remove_token

pytestmark = pytest.mark.attack

_URL = "https://train.example.org/mcp"
_ISSUER = "https://id.example.org"
_CLAIMS = ("sub", "client_id", "azp")
_ALIKE = (
    "",
    "\u200b",
    "\u202e",
    "\x00",
    " ",
    "\n",
    "\u0430",
    "A",
    "#",
    "\x1b[0m",
    "\ufe0f",
    "é",
    "e\u0301",
)


def claims_alike(chance: random.Random) -> list[dict[str, Any]]:
    """Claims of different people, which a careless eye or cut makes one."""
    name = chance.choice(
        ["bob", "x" * chance.choice([80, 99, 100, 101, 1000]), "oauth:bob", "b|ob"]
    )
    alike = {name + chance.choice(_ALIKE), chance.choice(_ALIKE) + name, name, name.upper()}
    alike |= {f"client_id:{name}"[:1024], f"{name}#0123456789ab"[:1024], name[:100]}
    alike |= {name + str(chance.randrange(10)), name[:-1]}
    return [{claim: value} for value in sorted(alike) for claim in _CLAIMS if value]


def identity(claims: dict[str, Any], issuer: str = _ISSUER) -> Identity | None:
    return identity_of(claims, OAuthSettings(issuer=issuer))


def test_different_claims_are_never_one_user_in_any_place() -> None:
    """Limits and quotas, the log's name, and the SDK's sessions and questions."""
    chance = attack_random("identity pairs")
    for _ in range(attack_count(60)):
        for one, other in combinations(claims_alike(chance), 2):
            first, second = identity(one), identity(other)
            if one == other or first is None or second is None:
                continue
            assert first.principal != second.principal, (one, other)
            assert first.name != second.name, (one, other)
            contexts = [authorization_context(sdk_user(each)) for each in (first, second)]
            assert contexts[0] != contexts[1], (one, other)


def test_an_issuer_is_part_of_who_it_is() -> None:
    first, second = (identity({"sub": "bob"}, f"https://{name}.example") for name in ("a", "b"))
    assert first is not None and second is not None
    assert first.principal != second.principal
    assert authorization_context(sdk_user(first)) != authorization_context(sdk_user(second))


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"sub": ""},
        {"sub": "", "client_id": "bob"},
        {"sub": 7},
        {"sub": ["bob"]},
        {"sub": {"bob": 1}},
        {"sub": True, "azp": "bob"},
        {"sub": "x" * 1025},
        {"client_id": ["bob"]},
    ],
)
def test_who_is_named_by_nothing_exact_is_nobody(claims: dict[str, Any]) -> None:
    assert identity(claims) is None


def test_a_plain_subject_is_shown_as_it_is() -> None:
    for subject in ("bob", "bob@example.org", "auth0|5f7c", "system:serviceaccount:a:b"):
        shown = identity({"sub": subject})
        assert shown is not None and shown.name == f"oauth:{subject}"


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    return {"TRAINMASTER_HOME": str(home)}


async def statuses(url: str, tokens: list[str]) -> list[int]:
    """What requests with these tokens get, many of them at once."""
    codes: list[int] = []
    at_once = anyio.CapacityLimiter(40)

    async def show(http: httpx.AsyncClient, token: str) -> None:
        async with at_once:
            headers = {**HEADERS, "Authorization": f"Bearer {token}"}
            codes.append((await http.post(url, json=BEGIN, headers=headers)).status_code)

    async with httpx.AsyncClient(timeout=60) as http, anyio.create_task_group() as tasks:
        for token in tokens:
            tasks.start_soon(show, http, token)
    return codes


def introspected(home: Path, issuing: AuthorizationServer) -> None:
    where = f"introspection_url: '{issuing.issuer}/introspect', client_id: {CLIENT[0]}"
    oauth = f"{{issuer: '{issuing.issuer}', {where}, client_secret: RS}}"
    settings(home, f"server: {{url: '{_URL}', oauth: {oauth}}}\n")


def test_sessions_of_people_with_names_alike_stay_theirs(
    environment: dict[str, str], home: Path
) -> None:
    async def scenario() -> None:
        async with authorization_server() as issuing:
            introspected(home, issuing)
            known = {"active": True, "aud": _URL, "scope": "trainmaster:read"}
            people = [{"sub": "x" * 100}, {"sub": "x" * 101}, {"sub": "x" * 100 + "\u200b"}]
            people += [{"sub": "bob"}, {"client_id": "bob"}, {"azp": "bob"}]
            issuing.opaque = {f"token{n}": {**known, **one} for n, one in enumerate(people)}
            listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
            async with serving({**environment, "RS": CLIENT[1]}) as url:
                for owner in issuing.opaque:
                    opened = await answered(url, owner)
                    session = {"mcp-session-id": opened.headers["mcp-session-id"]}
                    for other in issuing.opaque:
                        status = (await answered(url, other, session, listing)).status_code
                        assert status == (200 if other == owner else 404)

    anyio.run(scenario)


def test_a_token_of_a_name_that_was_given_again_has_no_old_session(
    environment: dict[str, str], home: Path
) -> None:
    async def scenario() -> None:
        before = token_for(environment, "ann", "read")
        async with serving(environment) as url:
            opened = await answered(url, before)
            session = {"mcp-session-id": opened.headers["mcp-session-id"]}
            remove_token(Home(home), "ann")
            after = add_token(Home(home), "ann", "read", now=0.0)
            listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
            assert (await answered(url, after, session, listing)).status_code == 404

    anyio.run(scenario)


def test_a_token_of_the_home_is_never_sent_to_the_authorization_server(
    environment: dict[str, str], home: Path
) -> None:
    async def scenario() -> None:
        async with authorization_server() as issuing:
            introspected(home, issuing)
            good = token_for(environment, "ann", "read")
            old = token_for(environment, "old", "read", expires_t=1.0)
            removed = token_for(environment, "gone", "read")
            remove_token(Home(home), "gone")
            async with serving({**environment, "RS": CLIENT[1]}) as url:
                for token in (
                    old,
                    removed,
                    good[:-1],
                    f"x{old}",
                    f"{old}x",
                    f"a.{removed}.b",
                    good[4:],
                    old[2:],
                ):
                    assert (await answered(url, token)).status_code == 401
                assert (await answered(url, good)).status_code == 200
            assert issuing.asked == []

    anyio.run(scenario)


def test_bad_tokens_cost_the_authorization_server_little_and_good_ones_still_count(
    environment: dict[str, str], home: Path
) -> None:
    async def scenario() -> None:
        async with authorization_server() as issuing:
            introspected(home, issuing)
            issuing.opaque = {
                "good": {"active": True, "aud": _URL, "scope": "trainmaster:read", "sub": "ann"}
            }
            async with serving({**environment, "RS": CLIENT[1]}) as url:
                assert (await answered(url, "good")).status_code == 200
                begun = time.monotonic()
                codes = await statuses(url, [f"bad{n}" for n in range(attack_count(200))])
                assert set(codes) == {401, 503}
                for n in range(attack_count(200)):  # where two seconds have passed, it asks for one
                    busy = await answered(url, f"unknown{n}")
                    if busy.status_code == 503:
                        break
                assert busy.json()["error"]["data"]["code"] == "SERVER_BUSY"
                assert int(busy.headers["retry-after"]) >= 1
                assert (await answered(url, "good")).status_code == 200
            # Ten at once, and one each two seconds.
            most = 1 + 10 + (time.monotonic() - begun) / 2 + 1
            assert issuing.asked.count("/introspect") <= most

    anyio.run(scenario)


def test_one_question_serves_all_who_show_the_same_token(
    environment: dict[str, str], home: Path
) -> None:
    async def scenario() -> None:
        async with authorization_server() as issuing:
            introspected(home, issuing)
            async with serving({**environment, "RS": CLIENT[1]}) as url:
                codes = await statuses(url, ["same"] * 30)
            assert codes == [401] * 30
            assert issuing.asked.count("/introspect") == 1

    anyio.run(scenario)


def test_replies_that_never_end_are_given_up_and_leave_room_for_others() -> None:
    async def scenario() -> None:
        async with authorization_server() as issuing, httpx.AsyncClient() as client:
            settings_ = OAuthSettings(
                issuer=issuing.issuer,
                introspection_url=f"{issuing.issuer}/introspect",
                client_id=CLIENT[0],
                client_secret="RS",
            )
            asked = AsksAuthorizationServer(client, issuing.issuer, within_s=0.3)
            tokens = OpaqueTokens(settings_, _URL, asked, CLIENT[1])
            issuing.drips = True
            with anyio.fail_after(30):
                for number in range(20):  # more than may be under way at once
                    with pytest.raises(HostError) as failed:
                        await tokens.identity(f"slow{number}", f"192.0.2.{number}")
                    assert failed.value.code == "AUTHORIZATION_UNREACHABLE"
                issuing.drips = False
                claims = {"active": True, "aud": _URL, "scope": "trainmaster:read", "sub": "ann"}
                issuing.opaque = {"good": claims}
                assert await tokens.identity("good", "192.0.2.99") is not None

    anyio.run(scenario)


def test_keys_are_fetched_once_for_all_who_wait(environment: dict[str, str], home: Path) -> None:
    async def scenario() -> None:
        async with authorization_server() as issuing:
            oauth = f"{{issuer: '{issuing.issuer}', jwks_url: '{issuing.issuer}/keys'}}"
            settings(home, f"server: {{url: '{_URL}', oauth: {oauth}}}\n")
            unknown = issuing.token(aud=_URL, scope="trainmaster:read")
            issuing.roll_keys("second")
            token = issuing.token(aud=_URL, scope="trainmaster:read")
            async with serving(environment) as url:
                codes = await statuses(url, [token, unknown] * 20)
            assert sorted(codes) == [200] * 20 + [401] * 20
            assert issuing.asked == ["/keys"]

    anyio.run(scenario)
