"""Rehearsals of a process share its threads, descriptors and processor, however many there are."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.host.scripted_processes import CONFIG
from support.runs.running_run import run_async, wait_until

from trainer_runtime.host.files.layout import RunFolder
from trainmaster.backends.debug.launcher import MOST_AT_ONCE, InProcessLauncher
from trainmaster.backends.hosts import LocalHost

# Of a rehearsal: its lock, the files of its supervisor, and those of its trainer.
_MOST_DESCRIPTORS = 8
_MORE = 24


class Rehearsals:
    """Folders of simulated trainings whose steps take an hour, and the launcher that has them."""

    def __init__(self, root: Path, count: int) -> None:
        self.host, self.launcher = LocalHost("debug", root), InProcessLauncher()
        self.folders = [str(root / "runs" / f"rehearsal-{n}-abc234") for n in range(count)]
        for folder in map(Path, self.folders):
            folder.mkdir(parents=True)
            env = {"TRAINMASTER_STEP_S": "3600"}
            self._write(folder / "config.json", {**CONFIG, "run_id": folder.name, "env": env})
            desired = {"v": 1, "state": "running", "generation": 1}
            self._write(folder / "desired.json", desired)

    def _write(self, path: Path, document: object) -> None:
        path.write_text(json.dumps(document))

    async def submit_all(self) -> list[bool]:
        return [await self.launcher.submit(self.host, folder) for folder in self.folders]

    def cancel_all(self) -> None:
        """Those that wait first; then at once, since each may rest for long between two ticks."""
        with ThreadPoolExecutor(len(self.folders)) as canceling:
            for folders in (self.folders[MOST_AT_ONCE:], self.folders[:MOST_AT_ONCE]):
                list(canceling.map(self.cancel, folders))

    def cancel(self, folder: str) -> bool:
        return run_async(lambda: self.launcher.cancel(self.host, folder))

    def begun(self) -> list[str]:
        return [one for one in self.folders if RunFolder(Path(one)).journal.exists()]


@pytest.fixture
def rehearsals(tmp_path: Path) -> Iterator[Rehearsals]:
    made = Rehearsals(tmp_path, MOST_AT_ONCE + _MORE)
    try:
        yield made
    finally:
        made.cancel_all()


def threads(*kinds: str) -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.partition("-")[0] in kinds]


def test_threads_and_descriptors_do_not_grow_with_the_runs_that_wait(
    rehearsals: Rehearsals,
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    assert all(run_async(rehearsals.submit_all))
    assert len(threads("supervisor")) == MOST_AT_ONCE
    wait_until(lambda: len(threads("trainer")) == MOST_AT_ONCE, "a trainer of each")
    assert len(rehearsals.begun()) == MOST_AT_ONCE
    assert len(os.listdir("/proc/self/fd")) - before <= MOST_AT_ONCE * _MOST_DESCRIPTORS


def test_a_run_that_waits_is_submitted_once_and_begins_when_another_ends(
    rehearsals: Rehearsals,
) -> None:
    launcher, host = rehearsals.launcher, rehearsals.host
    run_async(rehearsals.submit_all)
    assert not any(run_async(rehearsals.submit_all))
    found = run_async(lambda: launcher.jobs(host, rehearsals.folders))
    assert list(found) == rehearsals.folders
    first, following = rehearsals.folders[0], rehearsals.folders[MOST_AT_ONCE]
    wait_until(lambda: len(rehearsals.begun()) == MOST_AT_ONCE, "as many begin as may at once")
    assert run_async(lambda: launcher.cancel(host, first))
    wait_until(lambda: following in rehearsals.begun(), "the next one begins")
    assert len(rehearsals.begun()) == MOST_AT_ONCE + 1


def test_a_run_that_waits_is_cancelled_without_having_begun(rehearsals: Rehearsals) -> None:
    launcher, host, last = rehearsals.launcher, rehearsals.host, rehearsals.folders[-1]
    run_async(rehearsals.submit_all)
    assert run_async(lambda: launcher.cancel(host, last))
    assert not run_async(lambda: launcher.jobs(host, [last]))
    assert not run_async(lambda: launcher.cancel(host, last))
    assert last not in rehearsals.begun()
