"""Kills everything that a run consists of, at random moments, and checks whether anything is lost.

`tests/support/runs/faults.py` reports how many, and which.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.host.logical_clock import contents
from support.runs.faults import (
    KILLS,
    SEED,
    assert_the_same_was_learnt,
    strikes_on,
    train,
    two_specs,
)
from support.runs.running_run import CommandLine

from trainmaster.store.metrics_store import MetricsStore

pytestmark = pytest.mark.long


def test_a_run_survives_whatever_is_killed_with_nothing_lost_or_doubled(
    command: CommandLine, tmp_path: Path
) -> None:
    print(f"seed {SEED}, {KILLS} kills")

    def kill_tmux(_run: str) -> None:
        subprocess.run(["tmux", "kill-server"], env=command.environment, capture_output=True)

    quick, struck = two_specs(tmp_path)
    strikes = {**strikes_on(command, "trainer", "hold", "supervisor"), "tmux": kill_tmux}
    undisturbed = train(command, quick, {}, 0)
    disturbed = train(command, struck, strikes, KILLS)
    assert_the_same_was_learnt(command, undisturbed, disturbed)
    before = _contents(command.home)
    command("replay")
    assert _contents(command.home) == before


def _contents(home: Path) -> dict[str, list[Any]]:
    """All that the derived database says, but for its internal numbers."""
    store = MetricsStore(home / "metrics.db")
    found = contents(store)
    store.close()
    return found
