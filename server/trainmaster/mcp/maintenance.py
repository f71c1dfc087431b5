"""The server's background task: it maintains rented instances once, at the first use."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from typing import TYPE_CHECKING

from trainmaster.words.errors import TrainmasterError

if TYPE_CHECKING:
    from trainmaster.sync.workspace import Workspace

_SERVICE = "trainmaster.machines.renting.maintain"
_LOG = logging.getLogger(__name__)


class Background:
    """One task, that no call waits for; what goes wrong in it stands in the server's log."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def begin(self, workspace: Workspace) -> None:
        """Begin, in the loop that runs."""
        self._task = asyncio.get_running_loop().create_task(_look_after(workspace))

    async def end(self) -> None:
        """Give up what is not done: the next tick does it. May be repeated."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


async def _look_after(workspace: Workspace) -> None:
    import sqlite3

    from trainmaster.machines.renting.has_rentals import has_rentals

    try:
        if not has_rentals(workspace, os.environ):
            return
        service = await asyncio.to_thread(importlib.import_module, _SERVICE)  # heavy
        report = await service.maintain_instances(workspace)
    except (TrainmasterError, sqlite3.Error) as error:
        _LOG.warning("Rented instances could not be maintained: %s", type(error).__name__)
        return
    for name, why in report.failed.items():
        _LOG.warning("Rented instances, %s: %s", name, why)
