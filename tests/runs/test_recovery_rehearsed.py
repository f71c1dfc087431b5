"""The recovery policy on simulated trainers, seen from the client."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs.running_run import LONGEST_S, run_async, small_spec

from trainmaster.answers.status import StatusAnswer
from trainmaster.cli.views.blocks import view
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.launch.launch import launch
from trainmaster.runs.status.status import get_status
from trainmaster.sync.workspace import Workspace

pytestmark = pytest.mark.slow


async def rehearsed(
    workspace: Workspace, folder: Path, faults: str, *, ends: str = "completed", **changes: str
) -> StatusAnswer:
    """Launch with planted faults, and wait for the end. Steps that leave the supervisor time to see
    a spike while it lasts, and before what came before it is pruned."""
    env = f'{{TRAINMASTER_STEP_S: "0.06", TRAINMASTER_FAULTS: "{faults}"}}'
    batch = "{tokens: 256, micro_batch: 8}"
    spec = small_spec(folder, host="debug", env=env, batch=batch, **changes)
    run = (await launch(workspace, spec)).run_id
    ended = await wait_for_event(workspace, run, until=["end"], timeout_s=LONGEST_S)
    assert ended.state == ends, ended
    return await get_status(workspace, run, detail=True)


def test_a_simulated_training_out_of_memory_continues_with_half_the_micro_batch(
    workspace: Workspace, tmp_path: Path
) -> None:
    async def work() -> None:
        status = await rehearsed(workspace, tmp_path, "oom@30")
        first, second = status.attempts or []
        assert (first.reason, second.why, second.reason) == ("crashed", "cuda_oom", "completed")
        assert second.set == {"batch.micro_batch": 4, "batch.accumulation": 2}

    run_async(work)


def test_a_simulated_spike_is_rewound_to_before_it(workspace: Workspace, tmp_path: Path) -> None:
    async def work() -> None:
        rewind = "{on_spike: rewind_skip_data}"
        status = await rehearsed(workspace, tmp_path, "spike@170", steps="280", recovery=rewind)
        first, second = status.attempts or []
        assert (first.reason, second.why) == ("loss_spike", "loss_spike")
        assert second.started_at_step == 160

    run_async(work)


def test_a_rewind_has_its_checkpoint_however_often_the_training_saves(
    workspace: Workspace, tmp_path: Path
) -> None:
    async def work() -> None:
        rewind = "{on_spike: rewind_halve_lr}"
        often = "{every: 20, keep_latest: 2, keep_best: 0}"
        status = await rehearsed(
            workspace, tmp_path, "spike@102", steps="200", recovery=rewind, checkpoint=often
        )
        first, second = status.attempts or []
        assert (first.reason, first.untrusted_detail) == (
            "loss_spike",
            "ended by signal 9 (SIGKILL)",
        )
        assert second.started_at_step == 100

    run_async(work)


def test_a_launch_warns_of_a_rate_that_is_far_too_high(
    workspace: Workspace, tmp_path: Path
) -> None:
    async def work() -> None:
        spec = small_spec(tmp_path, host="debug", optimizer="{lr: 1e9}", steps="1")
        answer = await launch(workspace, spec)
        assert any("optimizer.lr is 1e+09" in warning for warning in answer.warnings or ())
        assert "Warning: optimizer.lr is 1e+09" in "\n".join(map(str, view(answer)))

    run_async(work)


def test_a_simulated_spike_stops_the_run_wherever_it_comes(
    workspace: Workspace, tmp_path: Path
) -> None:
    async def work() -> None:
        stop = "{on_spike: stop}"
        status = await rehearsed(
            workspace, tmp_path, "spike@100", ends="failed", steps="200", recovery=stop
        )
        assert status.reason is not None and status.reason.startswith("loss_spike")

    run_async(work)
