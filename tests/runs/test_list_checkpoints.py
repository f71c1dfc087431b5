"""Checkpoints that are verified while the run goes through its steps."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.core.journal_records import attempt_starting, lines, saved, started, state, verified
from support.runs.running_run import run_async
from support.sync.followed_run import FakeRun, FollowedWorkspace

from trainer_runtime.core.files.checkpoint_check import CheckpointCheck
from trainmaster.backends import Backend
from trainmaster.backends.hosted import HostedBackend
from trainmaster.backends.hosts import LocalHost
from trainmaster.backends.launchers.process import ProcessLauncher
from trainmaster.home.paths import Home
from trainmaster.runs.lists.list_checkpoints import list_checkpoints

RUN = "small-abc234"
EVENTS = [
    started(0, 100),
    *(body for step in (20, 40, 60) for body in (saved(step), verified(step))),
]
PRUNED = ("checkpoint", {"action": "pruned", "step": 20})


class Training(HostedBackend):
    """A host on which a checkpoint goes just before all are verified."""

    is_reported = True

    async def verify_checkpoints(self, run_id: str) -> Sequence[CheckpointCheck]:
        folder = Path(await self.folder(run_id))
        shutil.rmtree(folder / "checkpoints/step-00000020")
        if self.is_reported:
            with (folder / "attempts/1/events.jsonl").open("ab") as file:
                file.write(lines([*EVENTS, PRUNED])[-1])
        return await super().verify_checkpoints(run_id)


class TrainingWorkspace(FollowedWorkspace):
    """A workspace whose one host is that."""

    def __init__(self, home: Home) -> None:
        host = LocalHost("box", home.root / "box")
        super().__init__(home, host)
        self.box = Training(host, ProcessLauncher(), multiplexed=True)

    def backend(self, host: str) -> Backend:
        return self.box


@pytest.fixture
def workspace(home: Path) -> Iterator[TrainingWorkspace]:
    made = TrainingWorkspace(Home(home))
    run = FakeRun(made, home / "box/runs" / RUN)
    run.write("supervisor.jsonl", b"".join(lines([attempt_starting(1), state("running")])))
    run.write("attempts/1/events.jsonl", b"".join(lines(EVENTS)))
    for step in (20, 40, 60):
        (run.folder / f"checkpoints/step-{step:08d}").mkdir(parents=True)
    yield made
    made.close()


def test_one_that_was_pruned_meanwhile_is_not_listed(workspace: TrainingWorkspace) -> None:
    found = run_async(lambda: list_checkpoints(workspace, RUN, verify=True))
    assert [row.step for row in found.checkpoints] == [40, 60]
    assert [one.step for one in found.skipped] == [40, 60]  # without a manifest


def test_one_that_nobody_pruned_is_gone(workspace: TrainingWorkspace) -> None:
    workspace.box.is_reported = False
    found = run_async(lambda: list_checkpoints(workspace, RUN, verify=True))
    assert found.skipped[0].untrusted_detail == "its folder is gone"
