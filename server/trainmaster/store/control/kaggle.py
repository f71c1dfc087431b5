"""Kaggle: the sessions of runs, the week's quota, and the private data sets.

A session is recorded before its kernel is pushed. If the reply to a push is lost, the state of the
run's kernel shows whether it arrived; the push is never repeated blindly.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from typing import Any

from trainmaster.store.control.facts import Facts
from trainmaster.store.database import transaction

_QUOTA = "kaggle_quota"
_WAITING = "kaggle_waiting/"
_DATASET = "kaggle_dataset/"


class SessionState(str, Enum):
    """`intended`: recorded, and perhaps pushed. `pushed`: in Kaggle's queue."""

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
class SessionRequest:
    """A session to push: the kernel (`owner/slug`), the run's request that it serves, its limit.

    `newest_attempt`: the last attempt that the mirror held before it.
    """

    ref: str
    generation: int
    limit_s: float
    newest_attempt: int = 0


@dataclass(frozen=True, slots=True)
class KaggleSession:
    """One session of a run; `number` counts from 1. Times are Unix seconds.

    `sent_t`: the push began. `heard_t`: its log grew. `over_t`: Kaggle reported its end.
    `log_index`: the log is mirrored up to here; `read_again`: it was read from the beginning once
    more. `output`: whether it left files, of which `journal_bytes` and `verified_step` describe the
    journal's size and the newest verified checkpoint.
    """

    run_id: str
    number: int
    state: SessionState
    intended_t: float
    ref: str
    generation: int
    limit_s: float
    newest_attempt: int = 0
    ended_t: float | None = None
    sent_t: float | None = None
    pushed_t: float | None = None
    running_t: float | None = None
    heard_t: float | None = None
    over_t: float | None = None
    version: int | None = None
    url: str | None = None
    log_index: int = 0
    read_again: bool = False
    outcome: str | None = None
    detail: str | None = None
    output: bool = False
    journal_bytes: int = 0
    verified_step: int | None = None

    @property
    def alive(self) -> bool:
        """Whether it may be running: its end was not observed."""
        return self.state is not SessionState.ENDED

    @property
    def deadline_t(self) -> float | None:
        """When Kaggle ends it; None before it runs."""
        return None if self.running_t is None else self.running_t + self.limit_s


_COLUMNS = ("run_id", "number", "state", "intended_t", "ended_t")
_IN_BODY = frozenset(field.name for field in fields(KaggleSession)) - {*_COLUMNS}


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why the next session of a run is not pushed; `until_t`: for how long, if known."""

    reason: str
    until_t: float | None = None


@dataclass(frozen=True, slots=True)
class QuotaRecord:
    """The week's GPU quota as Kaggle reported it at `t`; it starts again at `refresh_t`."""

    left_s: float
    total_s: float
    refresh_t: float | None
    t: float


class KaggleRecords:
    """Each method is one transaction."""

    def __init__(self, connection: sqlite3.Connection, facts: Facts) -> None:
        self._connection = connection
        self._facts = facts

    def of_run(self, run_id: str) -> list[KaggleSession]:
        """A run's sessions, oldest first."""
        return self._select("WHERE run_id = ? ORDER BY number", run_id)

    def newest(self, run_id: str) -> KaggleSession | None:
        sessions = self._select("WHERE run_id = ? ORDER BY number DESC LIMIT 1", run_id)
        return sessions[0] if sessions else None

    def intend(self, run_id: str, t: float, request: SessionRequest) -> KaggleSession | None:
        """Record the next session; None where one is alive already."""
        with transaction(self._connection):
            newest = self.newest(run_id)
            if newest is not None and newest.alive:
                return None
            number = 1 if newest is None else newest.number + 1
            session = KaggleSession(run_id, number, SessionState.INTENDED, t, **asdict(request))
            self._write(session)
            self.wait_no_more(run_id)
        return session

    def withdraw(self, run_id: str, number: int) -> None:
        """Forget an intended session that was certainly not pushed."""
        self._connection.execute(
            "DELETE FROM kernel_sessions WHERE run_id = ? AND number = ? AND state = ?",
            (run_id, number, SessionState.INTENDED.value),
        )

    def change(
        self, run_id: str, number: int, state: SessionState | None = None, **changes: Any
    ) -> KaggleSession:
        """Advance a session to `state`, where the table allows it, and set other fields.

        Raises:
            KeyError: the run has no session with this number.
        """
        with transaction(self._connection):
            sessions = self._select("WHERE run_id = ? AND number = ?", run_id, number)
            if not sessions:
                raise KeyError((run_id, number))
            if state is not None and state in SESSION_TRANSITIONS[sessions[0].state]:
                changes["state"] = state
            new = replace(sessions[0], **changes)
            self._write(new)
        return new

    def wait_for(self, run_id: str, waiting: Waiting) -> None:
        """Record why nothing is pushed for a run; the next `intend` clears it."""
        self._facts.put(f"{_WAITING}{run_id}", json.dumps([waiting.reason, waiting.until_t]))

    def wait_no_more(self, run_id: str) -> None:
        """Forget why nothing is pushed for a run."""
        self._facts.remove(f"{_WAITING}{run_id}")

    def waiting(self, run_id: str) -> Waiting | None:
        text = self._facts.get(f"{_WAITING}{run_id}")
        return None if text is None else Waiting(*json.loads(text))

    def put_quota(self, quota: QuotaRecord) -> None:
        self._facts.put(_QUOTA, json.dumps(asdict(quota)))

    def quota(self) -> QuotaRecord | None:
        text = self._facts.get(_QUOTA)
        return None if text is None else QuotaRecord(**json.loads(text))

    def put_dataset(self, contents: str, ref: str) -> None:
        """Record which data set (`owner/slug`) holds these contents."""
        self._facts.put(f"{_DATASET}{contents}", json.dumps(ref))

    def remove_dataset(self, contents: str) -> None:
        self._facts.remove(f"{_DATASET}{contents}")

    def dataset(self, contents: str) -> str | None:
        text = self._facts.get(f"{_DATASET}{contents}")
        return None if text is None else str(json.loads(text))

    def has_secrets(self, run_id: str) -> bool:
        """Whether a data set holds secrets of a run, as far as that was recorded."""
        return self.dataset(f"secrets/{run_id}") is not None

    def _select(self, where: str, *arguments: str | int) -> list[KaggleSession]:
        rows = self._connection.execute(
            f"SELECT {', '.join(_COLUMNS)}, body FROM kernel_sessions {where}", arguments
        )
        return [_session(row) for row in rows]

    def _write(self, session: KaggleSession) -> None:
        values = asdict(session)
        body = {name: values[name] for name in _IN_BODY if values[name] is not None}
        columns = [values[name] for name in _COLUMNS]
        columns[2] = session.state.value
        self._connection.execute(
            "REPLACE INTO kernel_sessions VALUES (?, ?, ?, ?, ?, ?)", (*columns, json.dumps(body))
        )


def _session(row: Iterable[Any]) -> KaggleSession:
    run_id, number, state, intended_t, ended_t, body = row
    fields = {name: value for name, value in json.loads(body).items() if name in _IN_BODY}
    return KaggleSession(run_id, number, SessionState(state), intended_t, ended_t=ended_t, **fields)
