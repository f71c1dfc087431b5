"""An event loop that starts where a call first needs one: what reads only records needs none.

asyncio is a quarter of what a short command imports.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import Any, TypeVar

Answered = TypeVar("Answered")


def run_with_loop(call: Coroutine[Any, Any, Answered]) -> Answered:
    """What `call` returns, in an event loop from its first `loop_needed` on.

    Before that it may await nothing that suspends it.
    """
    context = copy_context()
    try:
        context.run(call.send, None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    import asyncio
    import logging

    # It warns of each write to a broken connection; the consequence is raised as an error.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    with asyncio.Runner() as runner:
        return runner.run(_rest_of(call), context=context)


@types.coroutine
def loop_needed() -> Generator[None, None, None]:
    """To be awaited before anything of asyncio; at once where a loop runs."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:
        yield


async def _rest_of(call: Coroutine[Any, Any, Answered]) -> Answered:
    return await _continued(call)


@types.coroutine
def _continued(call: Coroutine[Any, Any, Answered]) -> Generator[Any, None, Answered]:
    answered: Answered = yield from call
    return answered
