"""A status computes each of its parts once."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType

import pytest
from support.core.journal_records import attempt_starting, record, state
from support.host.scripted_processes import CONFIG
from support.runs.planted_runs import HALVED, finding

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.progress import Progress, SavedCheckpoint
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.runs.status.status import status_of
from trainmaster.store.run import Run
from trainmaster.sync.run_view import RunView

_PARTS = (
    "found_of",
    "tried_patches",
    "next_step",
    "newest_progress",
    "build_index",
    "run_state",
    "RunView.known_until",
    "RunView.silent_for_s",
    "RunView.attempt",
    "RunView.ended",
)


def _calls_in_status(view: RunView) -> Counter[str]:
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1

    sys.setprofile(count)
    try:
        status_of(view)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("last", ["running", "failed", "completed"])
def test_a_status_computes_each_part_once(last: str) -> None:
    journal = [attempt_starting(1), state("preparing"), finding("1a", patches=[HALVED])]
    found = record(*journal, state(last))
    saved = SavedCheckpoint(5, 1, 1.0, "checkpoints/5", 9, {}, verified=True)
    progress = Progress(attempt=1, step=7, checkpoints={5: saved})
    run = Run("r-abcdef", "r", 1.0, "local", "", CONFIG, {}, {})
    now = found.heartbeat_t or 0.0
    view = RunView(run, Desired(DesiredState.RUNNING, 1), found, [progress], now)
    calls = _calls_in_status(view)
    assert {part: calls[part] for part in _PARTS if calls[part] > 1} == {}
    assert calls["found_of"] == calls["next_step"] == 1
