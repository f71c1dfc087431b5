"""The speed of earlier runs, as the next plan takes it."""

from __future__ import annotations

from typing import Any

import pytest
from support.core.journal_records import metric, started
from support.runs.planted_journal import EVENTS, PlantedJournal

from trainmaster.runs.planning.calibration import measured_on
from trainmaster.sync.workspace import Workspace

_TOKENS = 32768
_FLOPS = 1e9
_LIKE: dict[str, Any] = {
    "framework": "hf",
    "compute": {"gpus": 8, "processes": 8, "strategy": "zero2", "threads": 8},
    "batch": {"micro_batch": 4},
    "data": {"seq_len": 1024},
    "derived": {"flops_per_token": _FLOPS},
}


def _ran(workspace: Workspace, name: str, host: str, step_s: float, **config: Any) -> None:
    run = PlantedJournal(workspace, name, host, **{**_LIKE, **config})
    described = {"device": "NVIDIA H100", "precision": "bf16", "tokens_per_step": _TOKENS}
    if host == "cpu1":
        described["device"] = "cpu"
    steps = [metric(step, step_time_s=step_s) for step in range(1, 31)]
    run.write(started(0, 1000, **described), *steps, name=EVENTS, every_s=step_s)


def test_all_runs_of_the_same_kind_of_gpu_calibrate_whatever_host_they_ran_on(
    workspace: Workspace,
) -> None:
    _ran(workspace, "first", "gpu1", 1.0)
    _ran(workspace, "second", "gpu2", 2.0, compute={**_LIKE["compute"], "threads": 16})
    _ran(workspace, "third", "gpu3", 4.0)
    _ran(workspace, "shared", "gpu1", 0.1, compute={**_LIKE["compute"], "strategy": "ddp"})
    _ran(workspace, "large", "gpu1", 0.1, derived={"flops_per_token": 9 * _FLOPS})
    cpu = {**_LIKE["compute"], "gpus": 0}
    _ran(workspace, "slow", "cpu1", 0.1, compute=cpu)
    calibration = measured_on(workspace, "gpu1", {"name": "x", "steps": 9, **_LIKE})
    assert len(calibration.measured) == 3
    assert calibration.flops_per_s("NVIDIA H100", "bf16") == pytest.approx(_TOKENS * _FLOPS / 2)
    assert calibration.flops_per_s("NVIDIA A100", "bf16") is None


def test_processors_are_calibrated_by_their_own_host_alone(workspace: Workspace) -> None:
    cpu = {**_LIKE["compute"], "gpus": 0}
    _ran(workspace, "own", "cpu1", 1.0, compute=cpu)
    planned = {"name": "x", "steps": 9, **_LIKE, "compute": cpu}
    assert len(measured_on(workspace, "cpu1", planned).measured) == 1
    assert not measured_on(workspace, "cpu2", planned).measured
