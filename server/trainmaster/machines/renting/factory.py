"""Which provider's client is meant, wherever a service is not given another."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

from trainmaster.machines.clouds import Cloud, open_cloud
from trainmaster.sync.workspace import Workspace
from trainmaster.words.errors import CloudError
from trainmaster.words.settings import read_settings

# A provider's client by its name.
Opener = Callable[[str], Cloud]
Told = TypeVar("Told")
# Of one provider, wherever somebody waits: a tool's call may ask somebody after it, and do things.
ANSWERS_WITHIN_S = 20.0


def opener(workspace: Workspace, opened: Opener | None) -> Opener:
    """`opened`, or what opens the real ones by the home's settings and this process's keys.

    Raises, what it gives:
        UsageError: `CLOUD_UNKNOWN`.
        CloudError: `CLOUD_KEY_MISSING`.
    """
    if opened is not None:
        return opened
    settings = read_settings(workspace.home)
    return lambda name: open_cloud(name, workspace.home, settings, os.environ)


async def in_time(
    provider: str, asked: Awaitable[Told], within_s: float = ANSWERS_WITHIN_S
) -> Told:
    """What a provider answers, however often it is tried.

    Raises:
        CloudError: `CLOUD_UNREACHABLE` where there is no answer in time.
    """
    try:
        async with asyncio.timeout(within_s):
            return await asked
    except TimeoutError:
        raise CloudError(
            "CLOUD_UNREACHABLE",
            f"{provider} gave no answer within {within_s:.0f} s.",
            "Try again, or look at the provider's status page.",
            retryable=True,
        ) from None
