"""A client of the MCP server, and what its calls answer."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client, StdioServerParameters

from trainmaster.mcp import build_server


@asynccontextmanager
async def connected(
    environment: dict[str, str], era: str = "2026-07-28", **options: Any
) -> AsyncIterator[Client]:
    async with Client(build_server(environment, **options), mode=era) as client:
        yield client


@asynccontextmanager
async def connected_over_stdio(
    environment: dict[str, str], era: str, *options: str, **client_options: Any
) -> AsyncIterator[Client]:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-c", "from trainmaster.cli import main; main()", "mcp", *options],
        env={**os.environ, **environment},
    )
    async with Client(server, mode=era, **client_options) as client:
        yield client


async def answer_of(client: Client, name: str, /, **arguments: Any) -> dict[str, Any]:
    """A successful call's structured content, which the client has held against its schema."""
    result = await client.call_tool(name, arguments)
    text = result.content[0].text  # type: ignore[union-attr]
    assert not result.is_error, text
    content: dict[str, Any] | None = result.structured_content
    assert content is not None
    assert json.loads(text) == content
    assert _nulls(content) <= {"resume_from", "verified"}
    return content


async def error_of(client: Client, name: str, /, **arguments: Any) -> str:
    """A refused call's text, which is all that clients show of it."""
    result = await client.call_tool(name, arguments)
    assert result.is_error
    text = str(result.content[0].text)  # type: ignore[union-attr]
    assert " Fix: " in text
    assert text.endswith(("retryable=yes", "retryable=no"))
    return text


def _nulls(value: Any, key: str = "") -> set[str]:
    if isinstance(value, dict):
        return set().union(*(_nulls(item, name) for name, item in value.items()))
    if isinstance(value, list):  # a null among others holds its place in a column
        return set().union(*(_nulls(item, key) for item in value if item is not None))
    return {key} if value is None else set()


async def wait_for(client: Client, run_id: str, *until: str) -> dict[str, Any]:
    """The answer of a wait for any of these events, however many calls that takes."""
    asked: dict[str, Any] = {"run_id": run_id, "until": list(until), "timeout_s": 40}
    answer = await answer_of(client, "wait_for_event", **asked)
    for _ in range(5):
        if answer["event"] != "timeout":
            break
        answer = await answer_of(client, "wait_for_event", **asked, cursor=answer["cursor"])
    return answer
