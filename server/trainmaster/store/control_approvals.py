"""The part of `control.db` that is about agreeing: what was quoted, who agreed, what was used up.

A row is a quote. It is good for one request, once: `used_t` is set in the transaction that finds it
good, so of two that come for it at once one goes away empty.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from dataclasses import dataclass, replace
from typing import Any, Protocol

from trainmaster.store.database import transaction

MIGRATION = """
    CREATE TABLE approvals (
        id TEXT PRIMARY KEY, action TEXT NOT NULL, asked TEXT NOT NULL, body TEXT NOT NULL,
        quoted_t REAL NOT NULL, expires_t REAL NOT NULL, approved_t REAL, used_t REAL
    ) WITHOUT ROWID
    """
EXPIRES_AFTER_S = 3600.0
ALLOWANCE = "allowance"
# Sums of cents are no exact ones.
_SLACK_USD = 1e-9
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_OPEN = "used_t IS NULL AND expires_t > ?"


class Quoted(Protocol):
    """`confirmation.Quote`, which stands floors above this module."""

    @property
    def action(self) -> str: ...
    @property
    def asked(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def usd(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Approval:
    """A quote on record. Times are Unix seconds; `by`: who agreed, None before anybody did."""

    id: str
    action: str
    asked: str
    text: str
    usd: float
    by: str | None
    quoted_t: float
    expires_t: float
    approved_t: float | None
    used_t: float | None

    def covers(self, quote: Quoted) -> bool:
        """Whether agreeing to this one is agreeing to `quote`: the same request, and no dearer."""
        same = (self.action, self.asked) == (quote.action, quote.asked)
        return same and quote.usd <= self.usd


class ApprovalRecords:
    """Each method is one transaction, in the connection of `Control`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def quote(self, quote: Quoted, now: float) -> Approval:
        """Put a quote on record; one that waits for the same word already is renewed."""
        with transaction(self._connection):
            for row in self._open(quote, now):
                if row.approved_t is None and row.covers(quote):
                    return self._write(replace(row, expires_t=now + EXPIRES_AFTER_S))
            return self._write(_new(quote, now))

    def find(self, approval_id: str) -> Approval | None:
        row = self._connection.execute(
            "SELECT * FROM approvals WHERE id = ?", (approval_id,)
        ).fetchone()
        return None if row is None else _approval(row)

    def waiting(self, now: float) -> list[Approval]:
        """Those that nobody agreed to yet, oldest first."""
        rows = self._connection.execute(
            f"SELECT * FROM approvals WHERE approved_t IS NULL AND {_OPEN} ORDER BY quoted_t, id",
            (now,),
        )
        return [_approval(row) for row in rows]

    def approve(self, approval_id: str, by: str, now: float) -> Approval | None:
        """Note that somebody agreed; None where the quote is unknown, used, or out of date."""
        with transaction(self._connection):
            row = self.find(approval_id)
            if row is None or row.used_t is not None or row.expires_t <= now:
                return None
            if row.approved_t is not None:
                return row
            return self._write(replace(row, by=by, approved_t=now))

    def take(self, quote: Quoted, now: float) -> Approval | None:
        """Use up an approval that is good for exactly this quote; None where there is none."""
        with transaction(self._connection):
            for row in self._open(quote, now):
                if row.approved_t is not None and row.covers(quote):
                    return self._write(replace(row, used_t=now))
        return None

    def take_answer(self, approval_id: str, quote: Quoted, by: str, now: float) -> Approval | None:
        """Agree to a quote that its user was shown, and use it up; None where it was used before,
        is out of date, or is not what would be done now."""
        with transaction(self._connection):
            row = self.find(approval_id)
            if row is None or row.used_t is not None or row.expires_t <= now:
                return None
            if not row.covers(quote):
                return None
            return self._write(replace(row, by=by, approved_t=row.approved_t or now, used_t=now))

    def take_from_allowance(
        self, quote: Quoted, allowance_usd: float, now: float
    ) -> Approval | None:
        """Use up a part of what may be spent without asking; None where that is not enough."""
        with transaction(self._connection):
            spent = sum(row.usd for row in self._used() if row.by == ALLOWANCE)
            left_usd = allowance_usd - spent
            if not (left_usd > 0 and 0 < quote.usd <= left_usd + _SLACK_USD):
                return None
            taken = replace(_new(quote, now), by=ALLOWANCE, approved_t=now, used_t=now)
            return self._write(taken)

    def give_back(self, approval_id: str) -> None:
        """Nothing came of what it was taken for: it is good again until it expires, and the
        allowance is what it was."""
        with transaction(self._connection) as connection:
            row = self.find(approval_id)
            if row is not None and row.by == ALLOWANCE:
                connection.execute("DELETE FROM approvals WHERE id = ?", (approval_id,))
            elif row is not None:
                self._write(replace(row, used_t=None))

    def withdraw(self, approval_id: str, now: float) -> None:
        """Somebody said no: it can't be approved any more."""
        self._connection.execute(
            "UPDATE approvals SET expires_t = min(expires_t, ?) WHERE id = ? AND used_t IS NULL",
            (now, approval_id),
        )

    def _open(self, quote: Quoted, now: float) -> list[Approval]:
        rows = self._connection.execute(
            f"SELECT * FROM approvals WHERE action = ? AND asked = ? AND {_OPEN}"
            " ORDER BY quoted_t, id",
            (quote.action, quote.asked, now),
        )
        return [_approval(row) for row in rows]

    def _used(self) -> list[Approval]:
        rows = self._connection.execute("SELECT * FROM approvals WHERE used_t IS NOT NULL")
        return [_approval(row) for row in rows]

    def _write(self, row: Approval) -> Approval:
        body = json.dumps({"text": row.text, "usd": row.usd, "by": row.by})
        times = (row.quoted_t, row.expires_t, row.approved_t, row.used_t)
        self._connection.execute(
            "REPLACE INTO approvals VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (row.id, row.action, row.asked, body, *times),
        )
        return row


def _new(quote: Quoted, now: float) -> Approval:
    new_id = "q-" + "".join(secrets.choice(_ALPHABET) for _ in range(6))
    expires_t = now + EXPIRES_AFTER_S
    return Approval(
        new_id, quote.action, quote.asked, quote.text, quote.usd, None, now, expires_t, None, None
    )


def _approval(row: tuple[Any, ...]) -> Approval:
    approval_id, action, asked, body, *times = row
    told = json.loads(body)
    return Approval(approval_id, action, asked, told["text"], told["usd"], told["by"], *times)
