"""A home in which something is due of every kind, and ports that note who does it.

Its host `gpu1` is a folder; Kaggle, providers and receivers of alerts are stand-ins.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from support.alerts.webhook_receiver import Receiver
from support.core.journal_records import (
    EventBody,
    attempt_ended,
    attempt_starting,
    kept,
    metric,
    started,
    state,
)
from support.kaggle.stage import Stage
from support.mcp.recording_ports import RecordingHost, RecordingKaggle, RecordingLauncher
from support.providers.runpod_site import RunPodSite
from support.runs.running_run import small_spec
from support.sync.followed_run import FakeRun

from trainer_runtime.core.alerts.message import trial_message
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.backends import KAGGLE, Backend
from trainmaster.backends.hosted import HostedBackend
from trainmaster.home.paths import Home
from trainmaster.runs.launch.launch import launch
from trainmaster.store import secret_values
from trainmaster.store.control.instances import RentedInstance, RentState
from trainmaster.store.host_record import HostRecord
from trainmaster.sync.follow import catch_up
from trainmaster.sync.workspace import Workspace

HOST = "gpu1"
SECRET = "DUE_TOKEN"
_ALERTS = [
    {"name": "high", "severity": "critical", "when": "loss > 0.1", "to": "ops"},
    {"name": "there", "severity": "critical", "when": "state failed", "to": "host"},
]
# Of control.db, what following may change: a run that has nothing more to write is closed, and what
# became of a session is noted.
_QUERIES = {"runs": "SELECT run_id, host, placement, cleaned, config FROM runs"}
_FOLLOWED_TABLES = frozenset({"kernel_sessions"})
# Of the home, what belongs to those who act.
_OF_ACTING = ("secrets", "transfers", "alerts", "advance", "kaggle", "keeper.json", "settings.yaml")


class RecordedWorkspace(Workspace):
    """`written`: what was done through the ports, in words."""

    def __init__(self, home: Home, root: Path) -> None:
        super().__init__(home)
        self.written: list[str] = []
        self.host = RecordingHost(HOST, root, self.written)
        self.stage = Stage(self, RecordingKaggle(self.written))
        self.launcher = RecordingLauncher(self.written)
        self._hosted = HostedBackend(self.host, self.launcher, multiplexed=True)
        self.control.put_host(HostRecord(HOST, "127.0.0.1", port=1), 1.0)

    def backend(self, host: str) -> Backend:
        known: dict[str, Backend] = {HOST: self._hosted, KAGGLE: self.stage.backend}
        return known.get(host) or super().backend(host)


class EverythingDue:
    """The runs, by what is due of them: `planned` (placing, secrets), `uploading` (a transfer),
    `silent` (a supervisor, an alert from here, alerts for its host), `stopping` (a request),
    `completed` (copies of checkpoints, forgetting secrets, sending a message) and `kaggle` (the
    next session). A rented instance's lease is over."""

    def __init__(
        self, workspace: RecordedWorkspace, folder: Path, receiver: Receiver, site: RunPodSite
    ) -> None:
        self.workspace, self.receiver, self.site = workspace, receiver, site
        self._folder = folder
        self._root = folder / HOST
        self._settle()
        self.planned, self.uploading = asyncio.run(self._launch_two())
        self.silent = self._begun("silent-aaaaaa", time.time() - 3600.0, alerts=_ALERTS)
        self.stopping = self._begun("stopping-aaaaaa", time.time())
        stop = Desired(DesiredState.STOPPED, 2, why="stop")
        workspace.control.request(self.stopping, stop, time.time())
        self.completed = self._completed()
        self.kaggle = self._between_sessions()
        self._rent()
        asyncio.run(catch_up(workspace, HOST))
        workspace.control.close_run(self.completed, 1)
        workspace.written.clear()
        site.asked.clear()

    @property
    def runs(self) -> list[str]:
        return [run.run_id for run in self.workspace.control.runs()]

    @property
    def spec(self) -> str:
        """Of a training on the host, whose checkpoints go to another folder of it as well."""
        return small_spec(
            self._folder,
            host=HOST,
            environment=f"{{python: {sys.executable}}}",
            secrets=f"[{SECRET}]",
            checkpoint=f'{{every: 20, mirror: "host:{self._root}/second"}}',
        )

    def unchanged(self) -> dict[str, Any]:
        """What nobody changes who only reads: hosts, what acting keeps in the home, records."""
        home = self.workspace.home.root
        kept = {name: dict(_tree(home / name)) for name in _OF_ACTING}
        kept |= {root: dict(_tree(home / root)) for root in ("local", "debug")}
        return {HOST: dict(_tree(self._root)), **kept, "control": self._records()}

    def asked_of_others(self) -> list[str]:
        """What was asked of providers and receivers that changes or sends something."""
        kinds = [asked.kind for asked in self.site.asked]
        changing = [kind for kind in kinds if kind in ("create", "end", "keys")]
        return [*changing, *(str(body) for body in self.receiver.asked)]

    def _settle(self) -> None:
        ops = f"ops: {{kind: webhook, url: '{self.receiver.url}', sender: operator}}"
        host = f"host: {{kind: webhook, url: '{self.receiver.url}', sender: box}}"
        self.workspace.home.settings.write_text(
            f"destinations:\n  {ops}\n  {host}\n"
            f"cloud_urls: {{runpod: '{self.site.url}'}}\nsecrets: {{allow: [{SECRET}]}}\n"
        )

    async def _launch_two(self) -> tuple[str, str]:
        """Two that are on record though their host is away; of one, all but its data is there."""
        workspace = self.workspace
        workspace.host.away = True
        planned = (await launch(workspace, self.spec)).run_id
        uploading = (await launch(workspace, self.spec)).run_id
        workspace.host.away = False
        run = workspace.control.run(uploading)
        assert run.document["data"]["upload"]
        (self._root / "runs" / uploading).mkdir(parents=True)
        workspace.control.set_placed(run, time.time())
        workspace.control.set_delivered(uploading, 1, time.time())
        return planned, uploading

    def _begun(self, run_id: str, t: float, *ended: EventBody, **config: Any) -> str:
        run = FakeRun(self.workspace, self._root / "runs" / run_id, HOST, **config)
        journal = (attempt_starting(1), ("attempt_running", {"attempt": 1}), state("running"))
        run.emit("supervisor.jsonl", (*journal, *ended), first_t=t - 10.0)
        run.emit("attempts/1/events.jsonl", [started(), metric(1), *kept(20, 2.0)], first_t=t - 9.0)
        run.write("attempts/1/train.log", b"step 1: loss 2.5\n")
        return run_id

    def _completed(self) -> str:
        checkpoint = {"metric": "val_loss", "mirror": "operator"}
        ended = (attempt_ended(1, "completed"), state("completed"), ("closed", {}))
        run_id = self._begun(
            "completed-aaaaaa", time.time(), *ended, checkpoint=checkpoint, secrets=[SECRET]
        )
        secret_values.keep(self.workspace.home, run_id, {SECRET: "a-value-of-it"})
        message = trial_message("ops", time.time(), "a-message")
        self.workspace.control.alerts.put_watched(run_id, {}, [(message, "ops")], time.time())
        return run_id

    def _between_sessions(self) -> str:
        stage = self.workspace.stage
        stage.now = time.time()
        stage.kaggle.refresh_t = stage.now + 1e6
        stage.place(secret=SECRET)
        session = stage.session()
        stage.emit(session, stage.begun() + stage.over())
        stage.follow()
        stage.complete(session, 10)
        return stage.view.run.run_id

    def _rent(self) -> None:
        now = time.time()
        instance = RentedInstance(
            f"tm-{self.workspace.control.instances.home_id()}-aaaaaa", "rented", "runpod",
            RentState.READY, "pod-1", now - 3600.0, now - 1.0, 1.0, 10.0,
            created_t=now - 3600.0, ready_t=now - 60.0,
        )  # fmt: skip
        self.workspace.control.instances.add(instance)

    def _records(self) -> dict[str, list[Any]]:
        with closing(sqlite3.connect(self.workspace.home.control_db)) as database:
            names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            tables = [name for (name,) in names if name not in _FOLLOWED_TABLES]
            queries = {name: _QUERIES.get(name, f"SELECT * FROM {name}") for name in tables}
            return {name: database.execute(query).fetchall() for name, query in queries.items()}


def _tree(root: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Every file and folder, with size and time of change."""
    for path in sorted([root, *root.rglob("*")]) if root.exists() else ():
        status = path.lstat()
        size = 0 if path.is_dir() else status.st_size
        yield os.path.relpath(path, root), (size, status.st_mtime_ns)
