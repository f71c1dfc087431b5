"""Where a run's time went, by its view."""

from __future__ import annotations

from trainer_runtime.core.protocol.states import RunState
from trainer_runtime.core.status.reckoning import Reckoning, reckon
from trainmaster.sync.run_view import RunView


def reckoning_of(view: RunView) -> Reckoning:
    """Where a run's time went since its launch; of a lost one up to when it was last heard from."""
    until_t = view.known_until
    if view.state is RunState.LOST and view.record.heartbeat_t is not None:
        until_t = view.record.heartbeat_t
    return reckon(view.record, view.attempts, until_t, requested_t(view))


def requested_t(view: RunView) -> float | None:
    """When the run was launched, by its host's clock; None for one that others had started."""
    return None if view.run.is_attached else view.run.created_t + view.skew_s
