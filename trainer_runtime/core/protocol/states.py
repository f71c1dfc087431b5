"""States of attempts, placements and runs: one enum each, one transition table.

Attempt and placement states are stored. A run's state is derived, by `run_state`.
"""

from __future__ import annotations

from enum import Enum

# Why the supervisor ends the trainer of a rehearsal: it has shown enough, or is to resume.
REHEARSED, REHEARSED_KILL = "rehearsed", "rehearsed_kill"


class AttemptState(str, Enum):
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class PlacementState(str, Enum):
    PLACED = "placed"
    PREPARING = "preparing"
    RUNNING = "running"
    RECOVERING = "recovering"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    SUPERSEDED = "superseded"


class RunState(str, Enum):
    PLANNED = "planned"
    PREPARING = "preparing"
    QUEUED = "queued"
    RUNNING = "running"
    RECOVERING = "recovering"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"


class DesiredState(str, Enum):
    RUNNING = "running"
    STOPPED = "stopped"


ENDED_PLACEMENTS = frozenset(
    {
        PlacementState.COMPLETED,
        PlacementState.FAILED,
        PlacementState.STOPPED,
        PlacementState.SUPERSEDED,
    }
)
ENDED_RUNS = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.STOPPED})

_ANY_END = (PlacementState.COMPLETED, PlacementState.FAILED, PlacementState.STOPPED)

# An ended placement starts again only by a newer generation of `desired.json` (a resume).
TRANSITIONS: dict[str, tuple[str, ...]] = {
    AttemptState.STARTING: (AttemptState.RUNNING, AttemptState.ENDED),
    AttemptState.RUNNING: (AttemptState.ENDED,),
    AttemptState.ENDED: (),
    PlacementState.PLACED: (PlacementState.PREPARING, *_ANY_END, PlacementState.SUPERSEDED),
    PlacementState.PREPARING: (
        PlacementState.RUNNING,
        PlacementState.RECOVERING,
        PlacementState.STOPPING,
        *_ANY_END,
    ),
    PlacementState.RUNNING: (PlacementState.RECOVERING, PlacementState.STOPPING, *_ANY_END),
    PlacementState.RECOVERING: (
        PlacementState.PREPARING,
        PlacementState.RUNNING,
        PlacementState.STOPPING,
        *_ANY_END,
    ),
    PlacementState.STOPPING: (PlacementState.RECOVERING, *_ANY_END),
    PlacementState.COMPLETED: (PlacementState.PREPARING, PlacementState.SUPERSEDED),
    PlacementState.FAILED: (PlacementState.PREPARING, PlacementState.SUPERSEDED),
    PlacementState.STOPPED: (PlacementState.PREPARING, PlacementState.SUPERSEDED),
    PlacementState.SUPERSEDED: (),
}


def may_follow(old: AttemptState | PlacementState, new: AttemptState | PlacementState) -> bool:
    """Whether the table lets `new` come after `old`; a state may always stand again."""
    return old is new or new in TRANSITIONS[old]


def run_state(
    placement: PlacementState | None,
    desired: DesiredState,
    *,
    request_pending: bool,
    silent_for_s: float,
    lost_after_s: float,
) -> RunState:
    """A run's state, from the stored states and the time since the host was last heard from.

    `request_pending`: the client requested something (a resume, a stop) that the placement has not
    answered yet.
    """
    if placement is None:
        return RunState.STOPPED if desired is DesiredState.STOPPED else RunState.PLANNED
    ended = placement in ENDED_PLACEMENTS
    if ended and not request_pending:
        return _RUN_STATE_OF[placement]
    if ended:
        return _RUN_STATE_OF[placement] if desired is DesiredState.STOPPED else RunState.RECOVERING
    if silent_for_s > lost_after_s:
        return RunState.LOST
    if desired is DesiredState.STOPPED:
        return RunState.STOPPING
    return _RUN_STATE_OF[placement]


_RUN_STATE_OF = {
    PlacementState.PLACED: RunState.PREPARING,
    PlacementState.PREPARING: RunState.PREPARING,
    PlacementState.RUNNING: RunState.RUNNING,
    PlacementState.RECOVERING: RunState.RECOVERING,
    PlacementState.STOPPING: RunState.STOPPING,
    PlacementState.COMPLETED: RunState.COMPLETED,
    PlacementState.FAILED: RunState.FAILED,
    PlacementState.STOPPED: RunState.STOPPED,
    PlacementState.SUPERSEDED: RunState.STOPPED,
}
