"""A completed run on the debug host, whose files are fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.runs.running_run import LONGEST_S, run_async, small_spec, wait_until

from trainer_runtime.core.files.durable import is_locked
from trainer_runtime.host.files.layout import RunFolder
from trainmaster.answers.runs import FetchAnswer
from trainmaster.errors.errors import TrainmasterError
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.fetch import fetch
from trainmaster.runs.launch.launch import launch
from trainmaster.sync.workspace import Workspace

CHANGES = {"host": "debug", "env": '{TRAINMASTER_STEP_S: "0"}'}


class Place:
    """A completed run of the debug host, and a folder to fetch into."""

    def __init__(self, workspace: Workspace, tmp_path: Path) -> None:
        self.workspace = workspace
        self.folder = tmp_path / "fetched"
        self.run = run_async(lambda: self._complete(small_spec(tmp_path, **CHANGES)))
        self.box = workspace.home.debug_root / "runs" / self.run
        lock = RunFolder(self.box).supervisor_lock
        wait_until(lambda: not is_locked(lock), "the supervisor's last line")

    async def _complete(self, spec: str) -> str:
        run = (await launch(self.workspace, spec)).run_id
        done = await wait_for_event(self.workspace, run, until=["completed"], timeout_s=LONGEST_S)
        assert done.event == "completed"
        return run

    def fetch(self, pattern: str, **arguments: Any) -> FetchAnswer:
        return run_async(lambda: fetch(self.workspace, self.run, pattern, self.folder, **arguments))

    def refused(self, pattern: str) -> TrainmasterError:
        with pytest.raises(TrainmasterError) as error:
            self.fetch(pattern)
        return error.value

    def names(self) -> list[str]:
        return sorted(
            str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()
        )

    def assert_same(self) -> None:
        for name in self.names():
            assert (self.folder / name).read_bytes() == (self.box / name).read_bytes(), name
