"""The status of a run at Kaggle, from its sessions and its journal. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.figures import in_utc, spoken_duration
from trainer_runtime.core.protocol.states import ENDED_RUNS, DesiredState, RunState
from trainmaster.backends.kaggle.sessions import DATA_SET, QUOTA
from trainmaster.backends.sessions import SessionSummary, state_in_session
from trainmaster.errors.errors import StateError
from trainmaster.store.control.kaggle import KaggleSession, SessionState, Waiting

KAGGLE_QUEUE = "kaggle_queue"
BETWEEN_SESSIONS = "between_sessions"


@dataclass(frozen=True, slots=True)
class Standing:
    """`session`: the newest; None before the first push. `waiting`: why none is pushed."""

    session: KaggleSession | None
    waiting: Waiting | None

    files_travel = True
    is_paused = False
    detail = None
    needs = "its next session is pushed from here"

    @property
    def runs(self) -> bool:
        """Whether a session is running, as far as known."""
        return self.session is not None and self.session.state is SessionState.RUNNING

    @property
    def alive(self) -> bool:
        return self.session is not None and self.session.alive

    @property
    def wants_start(self) -> bool:
        return not self.runs

    @property
    def heard_t(self) -> float:
        """The newest session's last sign of life; its log may arrive late and in one piece."""
        if self.session is None:
            return 0.0
        return max(self.session.running_t or 0.0, self.session.heard_t or 0.0)

    def state(self, recorded: RunState, desired: Desired, heartbeat_t: float | None) -> RunState:
        """The run's state; `recorded`: its state by the journal."""
        if recorded in ENDED_RUNS and self._is_unheard(heartbeat_t):
            return RunState.STOPPING if desired.state is DesiredState.STOPPED else RunState.QUEUED
        if desired.state is DesiredState.STOPPED:
            return recorded
        begun_t = self.session.intended_t if self.session is not None and self.runs else None
        return state_in_session(recorded, heartbeat_t, begun_t)

    def _is_unheard(self, heartbeat_t: float | None) -> bool:
        """Whether a live session has not sent a line yet."""
        session = self.session
        if session is None or not session.alive:
            return False
        return heartbeat_t is None or heartbeat_t < session.intended_t

    @property
    def reason(self) -> str:
        """Why the run is queued."""
        if self.alive:
            return KAGGLE_QUEUE
        return BETWEEN_SESSIONS if self.waiting is None else self.waiting.reason

    @property
    def lacks_data(self) -> bool:
        """Whether the next session waits for data sets."""
        return self.waiting is not None and self.waiting.reason == DATA_SET and not self.alive

    def data_generation(self, desired: Desired) -> int:
        """A counter that grows when data sets must be checked again: with requests and sessions."""
        return desired.generation + (0 if self.session is None else self.session.number)

    @property
    def resumes_at(self) -> float | None:
        """When the quota renews, if the next session waits for that; Unix seconds."""
        waits = self.waiting is not None and self.waiting.reason == QUOTA and not self.alive
        return self.waiting.until_t if waits and self.waiting is not None else None

    @property
    def waits(self) -> str:
        if self.resumes_at is not None:
            until = in_utc(self.resumes_at)
            return f"The quota is spent until {until}: {command('tick')} continues after that."
        if self.alive:
            return command("wait", "{run}", "--until", "running,end", "--timeout", "3600")
        return (
            f"{command('tick')} pushes the next session; "
            f"{command('wait', '{run}', '--until', 'end')} too."
        )

    @property
    def newest(self) -> SessionSummary | None:
        session = self.session
        if session is None:
            return None
        ends_t = session.deadline_t if session.alive else None
        return SessionSummary(session.number, ends_t, session.outcome, session.detail)

    def ended_with(self, begin_t: float, next_t: float | None) -> SessionSummary | None:
        return None  # its own words are in the journal

    @property
    def left_behind(self) -> str | None:
        """What remains at Kaggle after a clean: nothing is removed there automatically."""
        if self.session is None:
            return None
        return (
            f"The kernel {self.session.ref} and the private data sets with its data remain "
            "at Kaggle: delete them on its page if nothing needs them."
        )

    def refuse_stop(self, run_id: str) -> None:
        """Raises:
        StateError: `UNSUPPORTED`, a session would have to be ended, and Kaggle can't.
        """
        if self.session is None or not self.session.alive:
            return
        longest = spoken_duration(self.session.limit_s)
        until = in_utc(self.session.deadline_t) or f"{longest} after it begins"
        raise StateError(
            "UNSUPPORTED",
            f"Kaggle has no way to end a session: this one runs until {until} at most.",
            f"{command('stop', run_id, '--after-session')} keeps the next one from starting; in a "
            "browser, Kaggle's page of the kernel can cancel it.",
        )
