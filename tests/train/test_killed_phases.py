"""A curriculum in each framework that is not ours, killed anywhere and continued bit for bit."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest
from support.host.run_configs import changed
from support.host.tiny_training import TinyRun
from support.train.curriculum import BORDERS, with_curriculum
from support.train.killed_runs import FRAMEWORKS, assert_same, kill

pytestmark = pytest.mark.engine

KILLS = int(os.environ.get("TRAINMASTER_FAULT_KILLS", "2"))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_killed_curriculum_continues_bit_for_bit(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    config = with_curriculum(FRAMEWORKS[framework](tmp_path), "docs")
    if framework == "trl":  # where rows have the lengths that they have
        length = config["data"]["seq_len"]
        config["phases"] = [{**phase, "seq_len": length} for phase in config["phases"]]
    config = changed(config, {"eval__every_steps": 6, "checkpoint__every": 3})
    straight = TinyRun(tmp_path / "straight", config)
    code, _, errors = straight.train()
    assert code == 0, errors

    seed = int(os.environ.get("TRAINMASTER_FAULT_SEED") or random.SystemRandom().randrange(10**6))
    print(f"seed {seed}")
    moments, kills = random.Random(seed), 0
    while kills < KILLS:
        killed = TinyRun(tmp_path / f"killed-{kills}", config)
        while kills < KILLS and not (killed.folder / "final").exists():
            code = kill(killed, moments, BORDERS)
            assert code in (0, -signal.SIGKILL)
            kills += code != 0
        code, _, errors = killed.train()
        assert code == 0, errors
        assert_same(killed, straight)
