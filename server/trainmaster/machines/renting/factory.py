"""Creates the client of a provider, unless a service is given another factory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

from trainer_runtime.core.protocol.figures import spoken_duration
from trainmaster.errors.errors import CloudError
from trainmaster.machines.clouds import Cloud, open_cloud
from trainmaster.settings.settings import read_settings
from trainmaster.sync.workspace import Workspace

# From a provider's name to its client.
CloudFactory = Callable[[str], Cloud]
Result = TypeVar("Result")
# For one provider while a user waits: a tool call may ask the user afterwards, then act.
ANSWERS_WITHIN_S = 20.0


def cloud_factory(workspace: Workspace, factory: CloudFactory | None) -> CloudFactory:
    """`factory`, or one for the real providers with the home's settings and this process's keys.

    The factory raises:
        UsageError: `CLOUD_UNKNOWN`.
        CloudError: `CLOUD_KEY_MISSING`.
    """
    if factory is not None:
        return factory
    settings = read_settings(workspace.home)
    return lambda name: open_cloud(name, workspace.home, settings, os.environ)


async def with_timeout(
    provider: str, call: Awaitable[Result], within_s: float = ANSWERS_WITHIN_S
) -> Result:
    """The result of a provider call, all its retries included.

    Raises:
        CloudError: `CLOUD_UNREACHABLE`, no answer in time.
    """
    try:
        async with asyncio.timeout(within_s):
            return await call
    except TimeoutError:
        raise CloudError(
            "CLOUD_UNREACHABLE",
            f"{provider} gave no answer within {spoken_duration(within_s)}.",
            "Try again, or check the provider's status page.",
            retryable=True,
        ) from None
