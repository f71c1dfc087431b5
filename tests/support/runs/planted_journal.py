"""A run that no host works on: its journal and events are written by the test."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from support.core.journal_records import EventBody

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.followed_files import JOURNAL
from trainer_runtime.core.protocol.lines import encode
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.backends import KAGGLE, LOCAL
from trainmaster.store.control.runs import KAGGLE_LAUNCHER
from trainmaster.store.host_record import HostRecord
from trainmaster.store.run import Run
from trainmaster.sync.ingest import ingest_placement
from trainmaster.sync.workspace import Workspace

EVENTS = "attempts/1/events.jsonl"
_CONFIG = {"name": "x", "framework": "nanogpt", "method": "pretrain", "steps": 1000}


class PlantedJournal:
    """A run of `workspace` that is open, on a host that nobody can reach; on `local`, its folder is
    not there."""

    def __init__(
        self, workspace: Workspace, name: str, host: str = "gpu1", spec: str = "", **config: Any
    ) -> None:
        self.workspace, self.run_id = workspace, f"{name}-abcdef"
        self._seqs = defaultdict[str, int](int)
        assert workspace.metrics  # opened before anything is mirrored, so that nothing is rebuilt
        folder = "/x" if host != LOCAL else f"{workspace.home.root}/local/runs/{self.run_id}"
        if host not in (LOCAL, KAGGLE) and workspace.control.host(host) is None:
            record = HostRecord(name=host, address="127.0.0.1", port=9)
            workspace.control.put_host(record, time.time())
        run = Run(self.run_id, name, time.time(), host, spec, {**_CONFIG, **config}, {}, {})
        launcher = KAGGLE_LAUNCHER if host == KAGGLE else "ssh"
        workspace.control.add_run(run, Desired(DesiredState.RUNNING, 1), launcher, folder, None)
        workspace.control.set_placed(run, time.time())
        workspace.control.set_delivered(self.run_id, 1, time.time())

    def write(
        self,
        *bodies: EventBody,
        name: str = JOURNAL,
        t: float | None = None,
        every_s: float = 0.0,
    ) -> None:
        """Append lines of a file, now or at `t`, so far apart, and ingest them."""
        mirror = self.workspace.mirror.of(self.run_id, 1)
        first_t = time.time() if t is None else t
        lines = []
        for at, (kind, fields) in enumerate(bodies):
            lines.append(encode(self._seqs[name], first_t + at * every_s, kind, fields))
            self._seqs[name] += 1
        mirror.append(name, b"".join(lines))
        ingest_placement(self.workspace.metrics, mirror, self.run_id, 1)
