"""Answers to requests on stdin that are not JSON-RPC: the SDK drops these in silence."""

from __future__ import annotations

import contextvars
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Protocol, Self

from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCResponse, RequestId
from pydantic import ValidationError

from trainmaster.errors.errors import UsageError

# The id and the method stand near the line's beginning or end, whatever is between.
_SEARCHED_CHARACTERS = 4096
_ID = re.compile(r'"id"\s*:\s*(?:(-?\d{1,15})(?![\d.eE])|"([^"\\]{1,200})")')
_METHOD = re.compile(r'"method"\s*:\s*"([^"\\]{1,200})"')


class Incoming(Protocol):
    """What the SDK's transport gives: messages, and exceptions for what is none."""

    async def __anext__(self) -> SessionMessage | Exception: ...
    async def aclose(self) -> None: ...


class Outgoing(Protocol):
    async def send(self, item: SessionMessage, /) -> None: ...


class AnsweredRequests:
    """The messages of a transport; lines that can't be read are answered and left out."""

    def __init__(self, incoming: Incoming, outgoing: Outgoing) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    @property
    def last_context(self) -> contextvars.Context | None:
        """The context of the last message's sender, as the SDK's own streams have it."""
        return getattr(self._incoming, "last_context", None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while isinstance(item := await self._incoming.__anext__(), Exception):
            answer = refusal(item)
            if answer is not None:
                await self._outgoing.send(SessionMessage(answer))
        return item

    async def receive(self) -> SessionMessage | Exception:
        """The next message."""
        return await self.__anext__()

    async def aclose(self) -> None:
        """Close the transport's side."""
        await self._incoming.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


@asynccontextmanager
async def answering_stdio() -> AsyncIterator[tuple[AnsweredRequests, Any]]:
    """The streams of stdin and stdout, on which every request gets an answer."""
    async with stdio_server() as (incoming, outgoing):
        yield AnsweredRequests(incoming, outgoing), outgoing


def refusal(error: Exception) -> JSONRPCError | JSONRPCResponse | None:
    """The answer to a line that can't be read: a failed call for the call of a tool, else an error.

    The id is null where none can be read; None, and no answer, for an empty line.
    """
    id, method, is_empty = _read(error)
    if is_empty:
        return None
    text = str(_problem(error))
    if method == "tools/call" and id is not None:
        result = {"content": [{"type": "text", "text": text}], "isError": True}
        return JSONRPCResponse(jsonrpc="2.0", id=id, result=result)
    return JSONRPCError(jsonrpc="2.0", id=id, error=ErrorData(code=PARSE_ERROR, message=text))


def _problem(error: Exception) -> UsageError:
    why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else type(error).__name__
    return UsageError(
        "BAD_ARGUMENT",
        f"The request can't be read: {why[:200]}.",
        "Send one JSON-RPC message per line, as UTF-8, nested less than 200 levels.",
    )


def _read(error: Exception) -> tuple[RequestId | None, str, bool]:
    """The id and the method as far as they can be read, and whether there is nothing at all."""
    inputs = (
        [item["input"] for item in error.errors()] if isinstance(error, ValidationError) else []
    )
    fields = next((item for item in inputs if isinstance(item, dict) and "jsonrpc" in item), {})
    if inputs and isinstance(inputs[0], str) and not fields:
        return _read_line(inputs[0])
    id, method = fields.get("id"), fields.get("method")
    is_id = isinstance(id, str) or (isinstance(id, int) and not isinstance(id, bool))
    return id if is_id else None, method if isinstance(method, str) else "", False


def _read_line(line: str) -> tuple[RequestId | None, str, bool]:
    around = f"{line[:_SEARCHED_CHARACTERS]}\n{line[-_SEARCHED_CHARACTERS:]}"
    id, method = _ID.search(around), _METHOD.search(around)
    number, text = id.groups() if id else (None, None)
    return int(number) if number else text, method.group(1) if method else "", not line.strip()
