"""An operator whose settings name destinations, for tests of alerts: all within one process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.alerts.webhook_receiver import Receiver
from support.runs.running_run import small_spec

from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.launch.launch import launch
from trainmaster.runs.upkeep.maintain import maintain, maintaining
from trainmaster.sync.workspace import Workspace

FAST = '{TRAINMASTER_STEP_S: "0"}'
STEADY = '{TRAINMASTER_STEP_S: "0.06"}'
SLOW = '{TRAINMASTER_STEP_S: "0.2"}'
NAN = '{TRAINMASTER_STEP_S: "0", TRAINMASTER_FAULTS: "nan@30"}'
HIGH = "[{name: high, severity: critical, when: 'loss > 0.1 for 3', to: ops}]"


class Operator:
    def __init__(self, workspace: Workspace, folder: Path) -> None:
        self.workspace, self._folder = workspace, folder

    def settle(self, *destinations: str) -> None:
        """Write the settings: one destination a line."""
        lines = "".join(f"  {line}\n" for line in destinations)
        self.workspace.home.settings.write_text(f"destinations:\n{lines}" if lines else "")

    def hook(self, receiver: Receiver, sender: str, *, defaults: bool = False) -> None:
        defaults_line = f"defaults: {str(defaults).lower()}"
        self.settle(
            f"ops: {{kind: webhook, url: '{receiver.url}', sender: {sender}, {defaults_line}}}"
        )

    async def launch(self, env: str = FAST, **changes: str) -> str:
        spec = small_spec(self._folder, host="debug", env=env, **changes)
        return (await launch(self.workspace, spec)).run_id

    def addresses(self, run: str) -> Path:
        """The file in which its host has the addresses."""
        folder = self.workspace.control.recorded_folder(run)
        assert folder is not None
        return Path(folder) / ".alerts.json"

    async def ended(self, run: str) -> str:
        async with maintaining(self.workspace, run):
            ended = await wait_for_event(self.workspace, run, until=["end"], timeout_s=120)
        return ended.state

    async def until(self, met: Callable[[], Any], run: str) -> None:
        """Maintain a run until something is so."""
        deadline = time.monotonic() + 120.0
        while not met():
            assert time.monotonic() < deadline
            await maintain(self.workspace, [self.workspace.control.run(run)])
            await asyncio.sleep(0.05)
