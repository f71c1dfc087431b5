"""A job that is cancelled just as it starts something leaves nothing behind."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.host.container_images import BARE, Podman
from support.host.scripted_processes import CONFIG
from support.runs.running_run import own_run_id, wait_until

import trainer_runtime
from trainer_runtime.host.containers.container import RUN_LABEL
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.supervise.job import cancel_job

RUN = own_run_id("cancelled")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / RUN)
    attempt = made.attempt(1)
    attempt.root.mkdir(parents=True)
    compute = {"device": "cpu", "launcher": "docker", "image": BARE, "shm_size": "64m"}
    text = json.dumps({**CONFIG, "run_id": RUN, "compute": compute})
    for path in (made.config, attempt.config):
        path.write_text(text)
    return made


@pytest.fixture
def hold(run: RunFolder) -> Iterator[subprocess.Popen[bytes]]:
    """One whose supervisor is gone, before it starts a trainer: it waits for the lock."""
    with run.trainer_lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(
            [sys.executable, "-m", "trainer_runtime", "hold", ".", "1"],
            cwd=run.root,
            env={"PYTHONPATH": str(Path(trainer_runtime.__file__).parents[1])},
        )
        command_line = Path(f"/proc/{process.pid}/cmdline")
        wait_until(lambda: b"hold" in command_line.read_bytes(), "the start of hold")
        yield process
        process.kill()
        process.wait()


def test_a_trainer_that_was_about_to_start_does_not(
    run: RunFolder, hold: subprocess.Popen[bytes]
) -> None:
    assert cancel_job(run) is True
    assert hold.wait(timeout=60) == -9


def test_a_container_that_was_made_but_not_started_is_removed(
    run: RunFolder, hold: subprocess.Popen[bytes], podman: Podman
) -> None:
    podman("create", "--label", f"{RUN_LABEL}={RUN}", BARE, "true")
    assert len(podman.containers()) == 1
    assert cancel_job(run) is True
    assert podman.containers() == []
