"""How long a stop leaves the trainer to save."""

from __future__ import annotations

import time

import pytest
from support.core.journal_records import attempt_starting, lines, state
from support.runs.planted_journal import EVENTS, PlantedJournal
from support.runs.planted_runs import finding
from support.runs.running_run import run_async

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.runs.stop import stop
from trainmaster.store.run import Run
from trainmaster.sync.ingest import ingest_placement
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace

_CONFIG = {"name": "stuck", "framework": "nanogpt", "method": "pretrain", "steps": 1000}
_RUNNING = (attempt_starting(1), state("preparing"), state("running"))


@pytest.mark.parametrize(("code", "grace_s"), [("stall", 10.0), ("loss_spike", 120.0)])
def test_a_trainer_that_hangs_is_given_little_time(
    workspace: Workspace, code: str, grace_s: float
) -> None:
    run_id = "stuck-abcdef"
    run = Run(run_id, "stuck", time.time(), "nowhere", "", _CONFIG, {}, {})
    workspace.control.add_run(run, Desired(DesiredState.RUNNING, 1), "process", "/x", None)
    mirror = workspace.mirror.of(run_id, 1)
    journal = lines((*_RUNNING, finding("0c0c0c0c", code)), first_t=time.time())
    mirror.append("supervisor.jsonl", b"".join(journal))
    ingest_placement(workspace.metrics, mirror, run_id, 1)
    run_async(lambda: stop(workspace, run_id))
    assert load_view(workspace, run_id).desired.grace_s == grace_s


def test_a_run_whose_saves_take_long_is_given_long_to_save(workspace: Workspace) -> None:
    run = PlantedJournal(workspace, "large")
    run.write(*_RUNNING)
    saved = {"action": "saved", "step": 20, "path": "checkpoints/step-00000020", "size_bytes": 1}
    started = ("started", {"attempt": 1, "step": 0, "target_step": 1000})
    checkpoint = ("checkpoint", {**saved, "metrics": {}, "stall_s": 5.0, "write_s": 95.0})
    run.write(started, checkpoint, name=EVENTS)
    run_async(lambda: stop(workspace, run.run_id))
    assert load_view(workspace, run.run_id).desired.grace_s == 300.0
