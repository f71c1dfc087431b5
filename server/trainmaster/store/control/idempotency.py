"""Idempotency keys: a repeated call finds the result of the first one."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Literal

from trainmaster.errors.errors import UsageError

Action = Literal["launch", "attach", "adopt", "resume", "provision"]
Kind = Literal["run", "instance"]


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A key, and the call it was given with; `asked`: the arguments, as text or digest."""

    value: str
    action: Action
    asked: str

    @property
    def kind(self) -> Kind:
        """What the call creates: runs and instances have separate keys."""
        return "instance" if self.action == "provision" else "run"


class IdempotencyKeys:
    """Each method is one statement."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def result(self, key: IdempotencyKey) -> str | None:
        """The run's id or the instance's tag that the first call led to; None for a new key.

        Raises:
            UsageError: `IDEMPOTENCY_CONFLICT`, the key was used for another request.
        """
        row = self._connection.execute(
            "SELECT action, asked, result FROM idempotency_keys WHERE kind = ? AND key = ?",
            (key.kind, key.value),
        ).fetchone()
        if row is None:
            return None
        action, asked, result = row
        if (action, asked) != (key.action, key.asked):
            raise UsageError(
                "IDEMPOTENCY_CONFLICT",
                f"The idempotency key {key.value!r} was used before, for {key.kind} {result}.",
                "Use a new key for a new request.",
            )
        return str(result)

    def add(self, key: IdempotencyKey, result: str) -> bool:
        """Record the result of a key; False, and nothing recorded, where the key is taken."""
        added = self._connection.execute(
            "INSERT OR IGNORE INTO idempotency_keys VALUES (?, ?, ?, ?, ?)",
            (key.kind, key.value, key.action, key.asked, result),
        )
        return added.rowcount == 1

    def remove_run(self, run_id: str) -> None:
        """Free the keys whose result is a run."""
        self._connection.execute(
            "DELETE FROM idempotency_keys WHERE kind = 'run' AND result = ?", (run_id,)
        )
