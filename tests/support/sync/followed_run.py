"""Runs whose hosts are tests: placed on record, their files written by hand."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from support.core.journal_records import EventBody, attempt_starting, lines, state
from support.host.scripted_processes import CONFIG

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.backends import Backend
from trainmaster.backends.hosted import HostedBackend
from trainmaster.backends.hosts import Host
from trainmaster.backends.launchers.process import ProcessLauncher
from trainmaster.home.paths import Home
from trainmaster.store.host_record import HostRecord
from trainmaster.store.mirror import PlacementMirror
from trainmaster.store.run import Run
from trainmaster.sync.workspace import Workspace

HOST = "box"

_JOURNAL = "supervisor.jsonl"


class FollowedWorkspace(Workspace):
    """A workspace whose one host is given."""

    def __init__(self, home: Home, host: Host, *, multiplexed: bool = True) -> None:
        super().__init__(home)
        self.control.put_host(HostRecord(HOST, "127.0.0.1", port=1), 1.0)
        self._box = HostedBackend(host, ProcessLauncher(), multiplexed=multiplexed)

    def backend(self, host: str) -> Backend:
        return self._box


class FakeRun:
    """A placed run; `write` and `emit` are its host. `config`: what differs from the usual one."""

    def __init__(self, workspace: Workspace, folder: Path, host: str = HOST, **config: Any) -> None:
        self.run_id = folder.name
        name = self.run_id.rpartition("-")[0]
        found = {**CONFIG, "run_id": self.run_id, **config}
        run = Run(self.run_id, name, 1.0, host, "", found, {}, {})
        desired = Desired(DesiredState.RUNNING, 1)
        workspace.control.add_run(run, desired, "process", str(folder), None)
        workspace.control.set_placed(run, 2.0)
        workspace.control.set_delivered(self.run_id, 1, 3.0)
        self.folder = folder
        self._workspace = workspace
        (folder / "attempts" / "1").mkdir(parents=True)

    @property
    def mirror(self) -> PlacementMirror:
        return self._workspace.mirror.of(self.run_id, 1)

    def path(self, name: str) -> Path:
        return self.folder / name

    def write(self, name: str, data: bytes) -> None:
        """Append to a file of the run's folder."""
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        with self.path(name).open("ab") as file:
            file.write(data)

    def emit(self, name: str, events: Iterable[EventBody], *, first_t: float) -> None:
        self.write(name, b"".join(lines(events, first_t=first_t)))

    def replace(self, name: str, data: bytes) -> None:
        """Put another file in the place of one."""
        other = self.path(f"{name}.new")
        other.write_bytes(data)
        os.replace(other, self.path(name))

    def mirrored(self, name: str) -> bytes:
        path = self.mirror.path(name)
        return path.read_bytes() if path.exists() else b""

    def steps(self) -> list[int]:
        """The steps that the database knows, over all attempts and segments."""
        pieces = self._workspace.metrics.series(self.run_id, "loss")
        return [x for piece in pieces for x, _, _ in self._workspace.metrics.points(piece.sid)]


def heartbeat(run: FakeRun, *, t: float, first: bool = True) -> None:
    rows = (attempt_starting(1), state("running"), ("sample", {"values": {}}))
    data = lines(rows, first_t=t - 2)
    run.write(_JOURNAL, b"".join(data if first else data[-1:]))


def end_run(run: FakeRun) -> None:
    rows = (
        attempt_starting(1),
        state("preparing", generation=1),
        state("completed", generation=1),
        ("closed", {}),
    )
    run.write(_JOURNAL, b"".join(lines(rows)))
