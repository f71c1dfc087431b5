"""Loader processes: the same training as without, also where a stop reaches them."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
from pathlib import Path

import pytest
from support.host.run_configs import Config, changed
from support.host.tiny_training import LOSSES, RunFolder, prepared_config
from support.train.hf_attempts import Attempts

from trainer_runtime.core.protocol.lines import ExitCode


@pytest.fixture
def config(tmp_path: Path) -> Config:
    prepared = prepared_config(tmp_path, "hf", Path(__file__).read_bytes() * 12)
    changes = {"steps": 6, "eval__every_steps": 3, "eval__batches": 1, "checkpoint__every": 100}
    return changed(prepared, changes)


def stop_all() -> None:
    """As a scheduler ends a job, from a process of its own."""
    workers = [str(child.pid) for child in multiprocessing.active_children()]
    assert len(workers) == 2
    subprocess.run(["kill", "-TERM", *workers, str(os.getpid())], check=True)


@pytest.mark.long
def test_losses_are_those_without_workers_also_after_a_stop_of_all_processes(
    tmp_path: Path, config: Config
) -> None:
    attempt = Attempts()
    alone = RunFolder(tmp_path / "alone", config)
    stopped = RunFolder(tmp_path / "stopped", changed(config, {"data__workers": 2}))
    assert attempt(alone) == 0, attempt.errors
    for step in (2, 4):
        code = attempt(stopped, disturbance=(step, stop_all))
        assert code == ExitCode.SAVED_ON_SIGTERM, attempt.errors
        assert step in stopped.steps_stored()
    assert attempt(stopped) == 0, attempt.errors
    assert stopped.values_by_step(*LOSSES) == alone.values_by_step(*LOSSES)
    assert not multiprocessing.active_children()
