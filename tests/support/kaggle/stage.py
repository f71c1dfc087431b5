"""A run at Kaggle as this side goes about it, with a Kaggle that a test plays."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from support.kaggle.fake_client import HOUR_S, FakeKaggle, FakeSession

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.lines import encode
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.backends.follower import Followed, News
from trainmaster.backends.hosts.tree_files import TreeFile
from trainmaster.backends.kaggle.backend import KaggleBackend
from trainmaster.store import secret_values
from trainmaster.store.run import Run
from trainmaster.sync.ingest import Ingest, MirrorGrowth
from trainmaster.sync.rebuild import rebuild
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.transfer import due_transfers

RUN = "gpt-abc234"
JOURNAL = "supervisor.jsonl"
RUNNING = Desired(DesiredState.RUNNING, generation=1)
STOPPED = Desired(DesiredState.STOPPED, generation=2, why="stop")
AGAIN = Desired(DesiredState.RUNNING, generation=3, why="resume")
INDEX = "checkpoints_index.json"
SENT = {"fingerprint": "0123", "prepare": "here", "upload": {"size_bytes": 9}}


class Stage:
    """A run that is placed at Kaggle, and a clock that a test sets."""

    def __init__(self, workspace: Workspace, kaggle: FakeKaggle | None = None) -> None:
        self.workspace, self.now = workspace, 1_000_000.0
        self.kaggle = FakeKaggle() if kaggle is None else kaggle
        self.kaggle.refresh_t = self.now + 48 * HOUR_S
        control = workspace.control
        self.backend = KaggleBackend(workspace.home, control, self.kaggle, lambda: self.now)
        self.mirror = workspace.mirror.of(RUN, 1)
        self.seq = 0
        rebuild(workspace)  # as every command does first, with a new home

    def place(self, device: str = "cuda", *, data: bool = False, secret: str = "") -> Stage:
        """`data`: that has to be sent; `secret`: the name of one."""
        config = {
            "run_id": RUN,
            "name": "gpt",
            "framework": "nanogpt",
            "steps": 100,
            "checkpoint": {"metric": "val_loss"},
            "compute": {"device": device},
            "data": {"cache_dir": "/tmp/cache", **(SENT if data else {})},
            "secrets": [secret] if secret else [],
        }
        secret_values.keep(self.workspace.home, RUN, {secret: "a-value-of-it"} if secret else {})
        run = Run(RUN, "gpt", self.now, "kaggle", "", config, {}, {})
        launcher = self.backend.launcher_name
        self.workspace.control.add_run(run, RUNNING, launcher, "/kaggle/working/run", None)
        files = {"config.json": json.dumps(config).encode(), "train.py": b"pass\n"}
        asyncio.run(self.backend.place(RUN, files, frozenset()))
        self.request(RUNNING)
        self.workspace.control.set_placed(run, self.now)
        return self

    def request(self, desired: Desired) -> None:
        if desired.generation > 1:
            assert self.workspace.control.request(RUN, desired, self.now)
        asyncio.run(self.backend.request(RUN, desired))
        self.workspace.control.set_delivered(RUN, desired.generation, self.now)

    def send(self, text: bytes = b"tokens") -> None:
        """Have the data in a data set."""
        files = [TreeFile("train.bin", len(text), None, 0o644, None, text)]
        cache = f"/tmp/trainmaster-{self.workspace.control.instances.home_id()}"
        asyncio.run(self.backend.send(files, f"{cache}/data/0123"))

    @property
    def due(self) -> list[str]:
        return [item.what for item in due_transfers(self.workspace, RUN)]

    def start(self) -> bool:
        return asyncio.run(self.backend.start(RUN))

    def follow(self) -> News:
        """One pass of a new follower, as in a command."""

        async def work() -> News:
            async with self.backend.follower() as follower:
                news = await follower.copy_new({RUN: Followed(self.mirror, lambda: None, False)})
                while news.more:
                    more = await follower.copy_new(
                        {RUN: Followed(self.mirror, lambda: None, False)}
                    )
                    news.more = more.more
                return news

        news = asyncio.run(work())
        Ingest(self.workspace.metrics).take_in([MirrorGrowth(RUN, 1, self.mirror, None)])
        return news

    @property
    def view(self) -> RunView:
        return load_view(self.workspace, RUN)

    @property
    def standing(self) -> tuple[str, str | None]:
        """The state, and its reason with what was said of it."""
        said = ": ".join(part for part in (self.view.reason, self.view.detail) if part)
        return self.view.state.value, said or None

    def journal(self, *events: tuple[str, dict[str, Any]]) -> bytes:
        data = b""
        for kind, fields in events:
            data += encode(self.seq, self.now, kind, fields)
            self.seq += 1
        return data

    def begun(self, number: int = 1) -> bytes:
        """What a supervisor writes that starts an attempt."""
        fields = {"attempt": number, "generation": 1, "why": "launch", "mode": "latest"}
        return self.journal(
            ("started", {"pid": 1}),
            ("attempt_starting", {**fields, "candidates": [], "set": {}, "skip": None}),
            ("attempt_running", {"attempt": number}),
            ("state", {"state": "running"}),
        )

    def over(self, number: int = 1) -> bytes:
        ended = {"attempt": number, "reason": "session_over", "code": 75, "last_step": 10}
        return self.journal(
            ("attempt_ended", ended),
            ("state", {"state": "recovering", "reason": "session_over", "detail": "saved"}),
        )

    def session(self) -> FakeSession:
        """The next session, pushed and seen to run."""
        assert self.start()
        session = self.kaggle.newest
        size = self.mirror.size(JOURNAL)
        session.files[JOURNAL] = self.mirror.read(JOURNAL, 0, size)
        session.say(f"10:00:00 Session {session.order.number} of run {RUN}")
        return session

    def emit(self, session: FakeSession, data: bytes) -> None:
        session.emit(JOURNAL, len(session.files[JOURNAL]), data)

    def complete(self, session: FakeSession, step: int | None) -> None:
        """Let a session end with an output whose newest verified checkpoint is `step`."""
        session.files[INDEX] = f'{{"resume_from": {"null" if step is None else step}}}'.encode()
        session.end()
        self.follow()
