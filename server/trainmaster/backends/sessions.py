"""The sessions of a run at a place that lends time: Kaggle's, a scheduler's jobs. Pure.

Between two of them nothing of the run is alive, as is expected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import ENDED_RUNS, RunState


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """The newest session. `ends_t`: None unless it runs; `outcome`: how it ended, `detail` in the
    place's words."""

    number: int | str
    ends_t: float | None = None
    outcome: str | None = None
    detail: str | None = None


def state_in_session(
    recorded: RunState, heartbeat_t: float | None, begun_t: float | None
) -> RunState:
    """The state of a run that nobody stops. `recorded`: by its journal; `begun_t`: when the session
    began that runs, None where none does."""
    if recorded in ENDED_RUNS:
        return recorded
    if begun_t is None:
        return RunState.QUEUED
    if heartbeat_t is None:
        return RunState.PREPARING
    return RunState.RECOVERING if heartbeat_t < begun_t else recorded


class Sessions(Protocol):
    """What services ask. `files_travel`: files are given to a session when it begins and are back
    when it has ended; otherwise they can be read and sent at any time."""

    @property
    def files_travel(self) -> bool: ...

    @property
    def runs(self) -> bool:
        """Whether a session is running, as far as known."""

    @property
    def alive(self) -> bool:
        """Whether one is running, or waits for its turn."""

    @property
    def wants_start(self) -> bool:
        """Whether the next session may be due, which the place is then asked about."""

    @property
    def is_paused(self) -> bool:
        """Whether the place has refused the next session, and is not asked again yet."""

    @property
    def heard_t(self) -> float:
        """The newest session's last sign of life besides the heartbeat; 0 for none."""

    def state(self, recorded: RunState, desired: Desired, heartbeat_t: float | None) -> RunState:
        """The run's state; `recorded`: its state by the journal."""

    @property
    def reason(self) -> str:
        """Why the run is queued, as a code."""

    @property
    def detail(self) -> str | None:
        """What the place says of that reason, in words of its own."""

    @property
    def waits(self) -> str:
        """Why the run is queued and what would help, in sentences; `{run}` stands for its id."""

    @property
    def lacks_data(self) -> bool:
        """Whether the next session waits for data that this machine sends."""

    def data_generation(self, desired: Desired) -> int:
        """A counter that grows when data that travels must be checked again."""

    @property
    def resumes_at(self) -> float | None:
        """When the next session is expected to begin, if that is known; Unix seconds."""

    @property
    def newest(self) -> SessionSummary | None: ...

    def ended_with(self, begin_t: float, next_t: float | None) -> SessionSummary | None:
        """The session with which an attempt ended that began at `begin_t`, where that is known;
        `next_t`: when the next attempt began."""

    @property
    def left_behind(self) -> str | None:
        """What remains at the place after a clean."""

    @property
    def needs(self) -> str:
        """What only this machine does for the run, as in `unattended`."""

    def refuse_stop(self, run_id: str) -> None:
        """Raises:
        StateError: `UNSUPPORTED`, a session would have to be ended, and the place can't.
        """
