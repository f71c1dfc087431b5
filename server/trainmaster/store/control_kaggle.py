"""The tables of `control.db` for Kaggle: the sessions of runs, and the week's quota.

A session is recorded before its kernel is pushed. If the reply to a push is lost, the state of the
run's kernel shows whether it arrived; the push is never repeated blindly.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from trainmaster.store.database import transaction

MIGRATION = """
    CREATE TABLE kernel_sessions (
        run_id TEXT NOT NULL REFERENCES runs, number INTEGER NOT NULL, state TEXT NOT NULL,
        intended_t REAL NOT NULL, ended_t REAL, body TEXT NOT NULL,
        PRIMARY KEY (run_id, number)
    ) WITHOUT ROWID
    """
_QUOTA = "kaggle_quota"
_WAITING = "kaggle_waiting/"
_DATASET = "kaggle_dataset/"


class SessionState(str, Enum):
    """`intended`: recorded, perhaps pushed. `pushed`: in Kaggle's queue."""

    INTENDED = "intended"
    PUSHED = "pushed"
    RUNNING = "running"
    ENDED = "ended"


SESSION_TRANSITIONS: dict[SessionState, tuple[SessionState, ...]] = {
    SessionState.INTENDED: (SessionState.PUSHED, SessionState.RUNNING, SessionState.ENDED),
    SessionState.PUSHED: (SessionState.RUNNING, SessionState.ENDED),
    SessionState.RUNNING: (SessionState.ENDED,),
    SessionState.ENDED: (),
}


@dataclass(frozen=True, slots=True)
class KernelSession:
    """One session of a run; `number` counts from 1. Times are Unix seconds.

    `body`: `ref`, `generation` (of its request), `limit_s`, `sent_t` (of the push), `running_t`,
    `heard_t` (when its log last grew), `log_index` (the log is mirrored up to this event),
    `outcome` and `detail` of its end, `output` (whether it has one), `journal_bytes` and
    `verified_step` of that output.
    """

    run_id: str
    number: int
    state: SessionState
    intended_t: float
    ended_t: float | None = None
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        """Whether it may be running: its end is not recorded."""
        return self.state is not SessionState.ENDED

    @property
    def deadline_t(self) -> float | None:
        """When Kaggle ends it; None before it runs."""
        running_t = self.body.get("running_t")
        return None if running_t is None else float(running_t) + float(self.body["limit_s"])


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a run's next session is not pushed yet; `until_t`: for how long, if known."""

    reason: str
    until_t: float | None = None


class KernelRecords:
    """Each method is one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def of_run(self, run_id: str) -> list[KernelSession]:
        """A run's sessions, oldest first."""
        rows = self._connection.execute(
            "SELECT * FROM kernel_sessions WHERE run_id = ? ORDER BY number", (run_id,)
        )
        return [_session(row) for row in rows]

    def newest(self, run_id: str) -> KernelSession | None:
        row = self._connection.execute(
            "SELECT * FROM kernel_sessions WHERE run_id = ? ORDER BY number DESC LIMIT 1", (run_id,)
        ).fetchone()
        return None if row is None else _session(row)

    def intend(self, run_id: str, t: float, body: Mapping[str, Any]) -> KernelSession | None:
        """Record the next session; None if one is alive."""
        with transaction(self._connection) as connection:
            newest = self.newest(run_id)
            if newest is not None and newest.alive:
                return None
            number = 1 if newest is None else newest.number + 1
            session = KernelSession(run_id, number, SessionState.INTENDED, t, body=dict(body))
            connection.execute(
                "INSERT INTO kernel_sessions VALUES (?, ?, ?, ?, ?, ?)", _row(session)
            )
            connection.execute("DELETE FROM facts WHERE name = ?", (f"{_WAITING}{run_id}",))
        return session

    def withdraw(self, run_id: str, number: int) -> None:
        """Remove an intended session that was certainly not pushed."""
        self._connection.execute(
            "DELETE FROM kernel_sessions WHERE run_id = ? AND number = ? AND state = ?",
            (run_id, number, SessionState.INTENDED.value),
        )

    def change(
        self,
        run_id: str,
        number: int,
        state: SessionState | None = None,
        *,
        ended_t: float | None = None,
        **body: Any,
    ) -> KernelSession:
        """Move a session to another state, if the transition table allows it; `body` is merged."""
        with transaction(self._connection) as connection:
            row = connection.execute(
                "SELECT * FROM kernel_sessions WHERE run_id = ? AND number = ?", (run_id, number)
            ).fetchone()
            if row is None:
                raise KeyError((run_id, number))
            old = _session(row)
            allowed = state is not None and state in SESSION_TRANSITIONS[old.state]
            new = KernelSession(
                run_id,
                number,
                state if allowed and state is not None else old.state,
                old.intended_t,
                old.ended_t if ended_t is None else ended_t,
                {**old.body, **body},
            )
            connection.execute("REPLACE INTO kernel_sessions VALUES (?, ?, ?, ?, ?, ?)", _row(new))
        return new

    def wait_for(self, run_id: str, waiting: Waiting) -> None:
        """Record why nothing is pushed for a run; the next intent removes it."""
        stored = json.dumps([waiting.reason, waiting.until_t])
        self._connection.execute(
            "REPLACE INTO facts VALUES (?, ?)", (f"{_WAITING}{run_id}", stored)
        )

    def wait_no_more(self, run_id: str) -> None:
        """Remove the reason why nothing is pushed for a run."""
        self._connection.execute("DELETE FROM facts WHERE name = ?", (f"{_WAITING}{run_id}",))

    def waiting(self, run_id: str) -> Waiting | None:
        stored = self._fact(f"{_WAITING}{run_id}")
        return None if stored is None else Waiting(*stored)

    def note_quota(self, quota: Mapping[str, Any]) -> None:
        """Record the week's quota: `left_s total_s refresh_t t`."""
        self._connection.execute(
            "REPLACE INTO facts VALUES (?, ?)", (_QUOTA, json.dumps(dict(quota)))
        )

    def quota(self) -> Mapping[str, Any] | None:
        stored: Mapping[str, Any] | None = self._fact(_QUOTA)
        return stored

    def note_dataset(self, what: str, ref: str | None) -> None:
        """Record the data set (`owner/slug`) that holds something; None: it was removed."""
        if ref is None:
            self._connection.execute("DELETE FROM facts WHERE name = ?", (f"{_DATASET}{what}",))
        else:
            self._connection.execute(
                "REPLACE INTO facts VALUES (?, ?)", (f"{_DATASET}{what}", json.dumps(ref))
            )

    def dataset(self, what: str) -> str | None:
        ref: str | None = self._fact(f"{_DATASET}{what}")
        return ref

    def has_secrets(self, run_id: str) -> bool:
        """Whether a data set holds secrets of a run, as far as that was noted."""
        return self.dataset(f"secrets/{run_id}") is not None

    def _fact(self, name: str) -> Any:
        row = self._connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else json.loads(row[0])


def _row(session: KernelSession) -> tuple[Any, ...]:
    return (
        session.run_id, session.number, session.state.value, session.intended_t, session.ended_t,
        json.dumps(dict(session.body)),
    )  # fmt: skip


def _session(row: tuple[Any, ...]) -> KernelSession:
    run_id, number, state, intended_t, ended_t, body = row
    return KernelSession(run_id, number, SessionState(state), intended_t, ended_t, json.loads(body))
