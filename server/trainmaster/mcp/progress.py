"""Progress of a call while it lasts: clients show it, and keep waiting for what moves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.mcpserver import Context

from trainmaster.calls.stages import Stage, followed_stage


@asynccontextmanager
async def heartbeats(context: Context[Any, Any] | None, every_s: float) -> AsyncIterator[None]:
    """Within, the client that asked for progress gets the seconds since the beginning, which
    always grow, and what is being done, each `every_s` seconds."""
    with followed_stage() as stage:
        if context is None:
            yield
            return
        task = asyncio.get_running_loop().create_task(_beat(context, stage, every_s))
        try:
            yield
        finally:
            task.cancel()


async def _beat(context: Context[Any, Any], stage: Stage, every_s: float) -> None:
    started = time.monotonic()
    while True:
        await asyncio.sleep(every_s)
        try:
            await context.report_progress(time.monotonic() - started, None, stage.text or None)
        except Exception:  # the client is gone: the call itself finds out
            return
