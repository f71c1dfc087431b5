"""Alerts: their rules, how far each run was evaluated, and the messages that the client sends."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal

from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.protocol.alert_record import Message
from trainer_runtime.core.protocol.finding import Severity
from trainmaster.store.database import transaction

Sender = Literal["box", "operator"]
Origin = Literal["spec", "added", "default"]

EVERY_RUN = ""
_COLUMNS = "id, run_id, name, severity, condition, destination, sender, origin, created_t"


@dataclass(frozen=True, slots=True)
class AlertRow:
    """An alert. An empty `run_id` means every run; `sender` never changes."""

    id: str
    run_id: str
    name: str
    severity: Severity
    when: str
    to: str
    sender: Sender
    origin: Origin
    created_t: float


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message of the client; `core.protocol.alert_record.AlertDelivery` is a host's."""

    id: str
    run_id: str
    to: str
    message: Message
    fired_t: float
    phase: str
    tries: int
    due_t: float | None
    reason: str | None


class AlertRecords:
    """Each method is one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, row: AlertRow) -> bool:
        """Record an alert; False where its name is taken, or its id was recorded before, even if
        it was removed since."""
        inserted = self._connection.execute(
            f"INSERT OR IGNORE INTO alerts ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            astuple(row),
        )
        return inserted.rowcount == 1

    def of(self, run_id: str) -> list[AlertRow]:
        """The alerts of one run and those of every run; `EVERY_RUN`: only the latter."""
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM alerts WHERE removed_t IS NULL AND run_id IN ('', ?)"
            " ORDER BY run_id, created_t, name",
            (run_id,),
        )
        return [AlertRow(*row) for row in rows]

    def all(self) -> list[AlertRow]:
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM alerts WHERE removed_t IS NULL"
            " ORDER BY run_id, created_t, name"
        )
        return [AlertRow(*row) for row in rows]

    def defaults(self) -> set[str]:
        """The ids of all default alerts, including removed ones."""
        rows = self._connection.execute("SELECT id FROM alerts WHERE origin = 'default'")
        return {row[0] for row in rows}

    def ever(self, run_id: str) -> set[str]:
        """The ids of all that ever were of one run, and of every run; also those removed since."""
        rows = self._connection.execute("SELECT id FROM alerts WHERE run_id IN ('', ?)", (run_id,))
        return {row[0] for row in rows}

    def remove(self, alert_id: str, t: float) -> None:
        self._connection.execute("UPDATE alerts SET removed_t = ? WHERE id = ?", (t, alert_id))

    def forget(self, alert_id: str) -> None:
        """Delete an alert's record: the same alert may be added again."""
        self._connection.execute("DELETE FROM alerts WHERE id = ?", (alert_id,))

    def delivered(self, run_id: str) -> str | None:
        """The digest of the alerts that were last delivered to the run's host."""
        return self._run(run_id, "delivered")

    def set_delivered(self, run_id: str, digest: str) -> None:
        self._set(run_id, "delivered", digest)

    def watched(self, run_id: str) -> dict[str, Any] | None:
        """The state of the client's evaluation of a run; None before the first one."""
        text = self._run(run_id, "watched")
        return None if text is None else json.loads(text)

    def put_watched(
        self,
        run_id: str,
        watched: Mapping[str, Any],
        fired: Sequence[tuple[Message, str]],
        t: float,
    ) -> None:
        """Record the state of an evaluation and the messages that it fired, both or none."""
        with transaction(self._connection):
            self._set(run_id, "watched", json.dumps(watched))
            for message, to in fired:
                self._fire(message, to, t)

    def fire(self, message: Message, to: str, t: float) -> None:
        """Record a message that no evaluation of a run has fired."""
        self._fire(message, to, t)

    def watched_to_end(self, run_id: str) -> int:
        """Of a run evaluated to its end, the newest generation that it had answered; else 0."""
        return int(self._run(run_id, "watched_to_end") or 0)

    def set_watched_to_end(self, run_id: str, generation: int) -> None:
        self._set(run_id, "watched_to_end", generation)

    def due(self, now: float) -> list[MessageRow]:
        """The messages to send now, the longest due first."""
        return self._messages("WHERE due_t <= ? ORDER BY due_t", now)

    def next_due_t(self) -> float | None:
        row = self._connection.execute("SELECT min(due_t) FROM alert_messages").fetchone()
        return None if row[0] is None else float(row[0])

    def messages(self, run_id: str) -> list[MessageRow]:
        """The messages about a run, oldest first."""
        return self._messages("WHERE run_id = ? ORDER BY fired_t", run_id)

    def set_sent(self, message_id: str) -> None:
        self._connection.execute(
            "UPDATE alert_messages SET phase = 'sent', due_t = NULL, reason = NULL WHERE id = ?",
            (message_id,),
        )

    def set_failed(self, message_id: str, reason: str, due_t: float | None) -> None:
        self._connection.execute(
            "UPDATE alert_messages SET phase = 'failed', tries = tries + 1, reason = ?, due_t = ?"
            " WHERE id = ? AND phase != 'sent'",
            (reason, due_t, message_id),
        )

    def _fire(self, message: Message, to: str, t: float) -> None:
        self._connection.execute(
            "INSERT OR IGNORE INTO alert_messages VALUES (?, ?, ?, ?, ?, 'fired', 0, ?, NULL)",
            (message.id, message.run, to, json.dumps(message.to_dict()), t, t),
        )

    def _messages(self, where: str, argument: Any) -> list[MessageRow]:
        rows = self._connection.execute(
            "SELECT id, run_id, destination, body, fired_t, phase, tries, due_t, reason"
            f" FROM alert_messages {where}",
            (argument,),
        )
        return [
            MessageRow(name, run_id, to, Message.of(decode_fields(body, "control.db")), *rest)
            for name, run_id, to, body, *rest in rows
        ]

    def _run(self, run_id: str, column: str) -> str | None:
        row = self._connection.execute(
            f"SELECT {column} FROM alert_runs WHERE run_id = ?", (run_id,)
        ).fetchone()
        return row[0] if row else None

    def _set(self, run_id: str, column: str, value: str | int) -> None:
        self._connection.execute(
            f"INSERT INTO alert_runs (run_id, {column}) VALUES (?, ?)"
            f" ON CONFLICT (run_id) DO UPDATE SET {column} = excluded.{column}",
            (run_id, value),
        )
