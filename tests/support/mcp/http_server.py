"""The MCP server over HTTP, in this process, and clients of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from trainmaster.mcp.http.serve import Listening, bound_server
from trainmaster.mcp.toolsets import chosen_tools
from trainmaster.settings.roles import Role
from trainmaster.store.access_tokens import add_token
from trainmaster.store.private_home import open_home

_PATIENCE_S = 120.0
# What a client of the protocol sends with a POST.
_HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
BEGIN = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "bare", "version": "1"},
    },
}


def token_for(
    environment: Mapping[str, str], name: str, role: Role, expires_t: float | None = None
) -> str:
    return add_token(open_home(environment), name, role, now=0.0, expires_t=expires_t)


@asynccontextmanager
async def serving(
    environment: Mapping[str, str],
    *,
    authorized: bool = True,
    listening: Mapping[str, Any] | None = None,
    **chosen: Any,
) -> AsyncIterator[str]:
    """The endpoint's URL."""
    where = Listening(port=0, authorized=authorized, **(listening or {}))
    async with (
        bound_server(environment, where, chosen_tools(**chosen)) as bound,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(bound.serve)
        with anyio.fail_after(_PATIENCE_S):
            while not bound.server.started:
                await anyio.sleep(0.01)
        try:
            yield bound.url
        finally:
            bound.server.should_exit = True


@asynccontextmanager
async def client_of(
    url: str,
    token: str | None = None,
    era: str = "2026-07-28",
    *,
    headers: Mapping[str, str] | None = None,
    **options: Any,
) -> AsyncIterator[Client]:
    sent = {**(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})}
    async with (
        create_mcp_http_client(headers=sent) as http,
        Client(streamable_http_client(url, http_client=http), mode=era, **options) as client,
    ):
        yield client


async def answered(
    url: str,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    message: Mapping[str, Any] = BEGIN,
) -> httpx2.Response:
    """What a bare POST gets."""
    sent = {**_HEADERS, **(headers or {})}
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    async with httpx2.AsyncClient() as http:
        return await http.post(url, json=message, headers=sent)


def settings(home: Path, text: str) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "settings.yaml").write_text(text)
