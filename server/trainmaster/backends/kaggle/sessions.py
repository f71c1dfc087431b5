"""Which session of a run is due, and its time limit. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.states import ENDED_PLACEMENTS, DesiredState

if TYPE_CHECKING:
    from trainmaster.settings.settings import KaggleSettings
    from trainmaster.store.control.kaggle import KaggleSession

HOUR_S = 3600.0
QUOTA = "quota"
DATA_SET = "data_set"
# Consecutive sessions without a newer verified checkpoint before the run is given up.
MOST_BARREN = 3
# Minimum training time of a session.
_LEAST_TRAINING_S = 1800.0
_LONGEST_NAME = 36  # a slug has 50 characters


def slug_of(run_id: str) -> str:
    """The slug of a run's kernel: stable and unique."""
    name, _, unique = run_id.rpartition("-")
    safe = re.sub(r"[^a-z0-9]+", "-", name.lower())[:_LONGEST_NAME].strip("-")
    return "-".join(part for part in ("tm", safe, unique) if part)


def limit_of(settings: KaggleSettings, quota_left_s: float | None) -> float | None:
    """The time limit of the next session; None if the quota leaves too little time.

    `quota_left_s`: None for a kernel without accelerator, which has no quota.
    """
    whole_s = settings.session_hours * HOUR_S
    limit_s = whole_s if quota_left_s is None else min(whole_s, quota_left_s)
    margin_s = settings.margin_minutes * 60
    least_s = min(_LEAST_TRAINING_S, max(0.0, whole_s - margin_s) / 2)
    return limit_s if limit_s - margin_s >= least_s and limit_s > 0 else None


def is_wanted(record: Record, desired: Desired) -> bool:
    """Whether a run should be training: requested and not ended."""
    if desired.state is not DesiredState.RUNNING:
        return False
    return record.state not in ENDED_PLACEMENTS or record.generation < desired.generation


def given_up(sessions: Sequence[KaggleSession], generation: int) -> str | None:
    """Why no further session is pushed for a request: the last ones made no progress."""
    ended = [
        session for session in sessions if not session.alive and session.generation == generation
    ]
    barren = 0
    for index in range(len(ended) - 1, -1, -1):
        if _has_progressed(ended[index], ended[:index]):
            break
        barren += 1
    if barren < MOST_BARREN:
        return None
    reason = f"{barren} sessions in a row brought no newer verified checkpoint"
    detail = ended[-1].detail
    return f"{reason}; the last: {detail}" if detail else reason


def with_output(sessions: Sequence[KaggleSession]) -> KaggleSession | None:
    """The newest session with an output."""
    return next((session for session in reversed(sessions) if session.output), None)


def _has_progressed(session: KaggleSession, earlier: Sequence[KaggleSession]) -> bool:
    """A resume needs a checkpoint in a session's output."""
    step = session.verified_step
    before = [earlier_session.verified_step for earlier_session in earlier]
    return step is not None and all(
        earlier_step is None or step > earlier_step for earlier_step in before
    )
