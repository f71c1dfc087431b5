from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.train.operator_threads import operators_in_this_thread_alone

from trainer_runtime.train.attempt.events import EventLog
from trainer_runtime.train.attempt.nan_guard import NonFiniteError
from trainer_runtime.train.checkpoints.checkpoint import Checkpoint, Checkpoints
from trainer_runtime.train.checkpoints.checkpoint_store import CheckpointStore, Origin, stored_steps
from trainer_runtime.train.checkpoints.retention import Retention


def test_a_save_leaves_all_operators_to_the_training_thread(tmp_path: Path) -> None:
    events = EventLog(tmp_path / "events.jsonl")
    retention = Retention(3, 0, None, "val_loss")
    store = CheckpointStore(tmp_path / "checkpoints", Origin(1, "", 0), retention, events)
    checkpoints = Checkpoints(store, events)
    weights = torch.ones(1 << 20)
    with operators_in_this_thread_alone():
        for step in (50, 100):
            checkpoints.save(Checkpoint(step, {"model": {"w": weights}}, {}, {}))
        with pytest.raises(NonFiniteError):
            checkpoints.save(Checkpoint(150, {"model": {"w": weights / 0.0}}, {}, {}))
        checkpoints.close()
    assert stored_steps(store.folder) == [50, 100]
