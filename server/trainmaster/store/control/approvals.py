"""Approvals: quotes, who approved them, and which were used.

A row is a quote. It is valid for one request, once: `used_t` is set in the transaction that finds
it valid, so of two concurrent requests only one gets it.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from dataclasses import dataclass, replace
from typing import Any, Protocol

from trainmaster.store.database import transaction

EXPIRES_AFTER_S = 3600.0
ALLOWANCE = "allowance"
# Sums of cents are not exact in binary.
_SLACK_USD = 1e-9
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_OPEN = "used_t IS NULL AND expires_t > ?"


class Quoted(Protocol):
    """What is to be confirmed; `errors.confirmation.Quote` is one."""

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
    """A recorded quote. Times are Unix seconds; `by`: who approved it, None until then."""

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
        """Whether approving this one approves `quote`: the same request, at most at its price."""
        same = (self.action, self.asked) == (quote.action, quote.asked)
        return same and quote.usd <= self.usd


class ApprovalRecords:
    """Each method is one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def quote(self, quote: Quoted, now: float) -> Approval:
        """Record a quote; one that already waits for the same approval is renewed."""
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
        """The quotes that wait for an approval, oldest first."""
        rows = self._connection.execute(
            f"SELECT * FROM approvals WHERE approved_t IS NULL AND {_OPEN} ORDER BY quoted_t, id",
            (now,),
        )
        return [_approval(row) for row in rows]

    def approve(self, approval_id: str, by: str, now: float) -> Approval | None:
        """Record an approval; None where the quote is unknown, used, or expired."""
        with transaction(self._connection):
            row = self.find(approval_id)
            if row is None or row.used_t is not None or row.expires_t <= now:
                return None
            if row.approved_t is not None:
                return row
            return self._write(replace(row, by=by, approved_t=now))

    def take(self, quote: Quoted, now: float) -> Approval | None:
        """Use an approval that covers this quote; None where there is none."""
        with transaction(self._connection):
            for row in self._open(quote, now):
                if row.approved_t is not None and row.covers(quote):
                    return self._write(replace(row, used_t=now))
        return None

    def take_answer(self, approval_id: str, quote: Quoted, by: str, now: float) -> Approval | None:
        """Approve and use a quote that the user was shown; None where it was used before, has
        expired, or does not cover the request as it is now."""
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
        """Use a part of what may be spent without approval; None where that is not enough."""
        with transaction(self._connection):
            used_usd = sum(row.usd for row in self._used() if row.by == ALLOWANCE)
            left_usd = allowance_usd - used_usd
            if not (left_usd > 0 and 0 < quote.usd <= left_usd + _SLACK_USD):
                return None
            taken = replace(_new(quote, now), by=ALLOWANCE, approved_t=now, used_t=now)
            return self._write(taken)

    def give_back(self, approval_id: str) -> None:
        """Undo a use of which nothing came: the approval is valid again until it expires, or the
        allowance is restored."""
        with transaction(self._connection) as connection:
            row = self.find(approval_id)
            if row is not None and row.by == ALLOWANCE:
                connection.execute("DELETE FROM approvals WHERE id = ?", (approval_id,))
            elif row is not None:
                self._write(replace(row, used_t=None))

    def withdraw(self, approval_id: str, now: float) -> None:
        """Decline a quote: it can't be approved any more."""
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
    details = json.loads(body)
    text, usd, by = details["text"], details["usd"], details["by"]
    return Approval(approval_id, action, asked, text, usd, by, *times)
