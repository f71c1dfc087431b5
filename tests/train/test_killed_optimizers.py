"""Optimizers with much state of their own, in each framework, killed and continued bit for bit."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.host.run_configs import changed
from support.host.tiny_training import TinyRun
from support.train import optimizers
from support.train.killed_runs import FRAMEWORKS, assert_same

pytestmark = pytest.mark.engine

STEPS, SAVED_EVERY, KILLED_AT = 16, 5, 12
CHANGES: Mapping[str, object] = {
    "steps": STEPS,
    "eval__every_steps": 8,
    "checkpoint__every": SAVED_EVERY,
}


@pytest.mark.parametrize("name", ["muon", "lion", "schedule_free", "adamw8bit"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_killed_training_continues_bit_for_bit(
    framework: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    config = changed(FRAMEWORKS[framework](tmp_path), CHANGES)
    config = changed(config, {"optimizer": optimizers.section(name)})
    straight, killed = (TinyRun(tmp_path / of, config) for of in ("straight", "killed"))
    code, _, errors = straight.train()
    assert code == 0, errors
    assert killed.end_at(KILLED_AT, signal.SIGKILL) == -signal.SIGKILL
    assert not (killed.folder / "final").exists()
    code, _, errors = killed.train()
    assert code == 0, errors

    resumed = [event for event in killed.events() if event["kind"] == "started"][-1]
    assert 0 < resumed["resumed_from"] <= KILLED_AT
    assert_same(killed, straight)
