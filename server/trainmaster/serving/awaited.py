"""An answer that is made only as long as its client waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

from trainmaster.calls.work import too_long

_Answer = TypeVar("_Answer")


async def while_awaited(request: Request, answer: Coroutine[Any, Any, _Answer]) -> _Answer:
    """The answer to a request without a body; it is cancelled once the connection is closed.

    Raises:
        StateError: `READ_TOO_LONG`, nobody waits for it; and whatever `answer` raises.
    """
    making, leaving = asyncio.create_task(answer), asyncio.create_task(_leaves(request))
    try:
        await asyncio.wait((making, leaving), return_when=asyncio.FIRST_COMPLETED)
        if making.done():
            return making.result()
        raise too_long("The page that asked for this is closed.")
    finally:
        making.cancel()
        leaving.cancel()


async def _leaves(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
