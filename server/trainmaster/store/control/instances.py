"""The part of `control.db` that is about rented boxes: what was meant to be rented, what was, what
it cost; and who agreed to what.

A box stands here before its provider is asked for it, and its tag is in its name over there: what
happened in between is found out by listing, never by asking for another.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from trainmaster.store.control.facts import Facts
from trainmaster.store.control.idempotency import IdempotencyKey, IdempotencyKeys
from trainmaster.store.database import transaction

TABLE = """
    CREATE TABLE boxes (
        tag TEXT PRIMARY KEY, host TEXT NOT NULL, provider TEXT NOT NULL, state TEXT NOT NULL,
        provider_id TEXT, intended_t REAL NOT NULL, lease_end_t REAL NOT NULL,
        usd_per_h REAL NOT NULL, budget_usd REAL NOT NULL, ended_t REAL, body TEXT NOT NULL
    );
    CREATE INDEX open_boxes ON boxes (state) WHERE ended_t IS NULL;
    """


class RentState(str, Enum):
    """Where a box is on its way. `intended`: on record, and perhaps asked for."""

    INTENDED = "intended"
    CREATED = "created"
    READY = "ready"
    RELEASING = "releasing"
    ENDED = "ended"


RENT_TRANSITIONS: dict[RentState, tuple[RentState, ...]] = {
    RentState.INTENDED: (RentState.CREATED, RentState.RELEASING, RentState.ENDED),
    RentState.CREATED: (RentState.READY, RentState.RELEASING, RentState.ENDED),
    RentState.READY: (RentState.RELEASING, RentState.ENDED),
    RentState.RELEASING: (RentState.ENDED,),
    RentState.ENDED: (),
}


@dataclass(frozen=True, slots=True)
class RentedBox:
    """A box on record. `host`: the name of the host that it is, or is to become.

    Times are Unix seconds; `intended_t` is when it came on record, from which its lease counts.
    `usd_per_h` and `budget_usd` are what was agreed to. `body`: offer, request, who agreed
    (`agreed_by`), times of its states, and whatever else is only looked at.
    """

    tag: str
    host: str
    provider: str
    state: RentState
    provider_id: str | None
    intended_t: float
    lease_end_t: float
    usd_per_h: float
    budget_usd: float
    ended_t: float | None = None
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        return self.ended_t is None


class BoxRecords:
    """Each method is one transaction."""

    def __init__(self, connection: sqlite3.Connection, facts: Facts, keys: IdempotencyKeys) -> None:
        self._connection = connection
        self._facts = facts
        self._keys = keys

    def home_id(self) -> str:
        """What tells this home's tags from those of others of the same account; never changes."""
        return self._facts.put_once("home_id", secrets.token_hex(3))

    def add(
        self,
        box: RentedBox,
        key: IdempotencyKey | None = None,
        check: Callable[[Sequence[RentedBox]], None] = lambda _boxes: None,
    ) -> RentedBox:
        """Record an intent; where `key` is taken, the instance that it stands for.

        `check` is given all instances so far and raises the reason against another; no other
        process adds one meanwhile.

        Raises:
            UsageError: `IDEMPOTENCY_CONFLICT`.
        """
        with transaction(self._connection) as connection:
            if key is not None and (known := self.of_key(key)) is not None:
                return known
            check(self.boxes())
            connection.execute(
                "INSERT INTO boxes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", _row(box)
            )
            if key is not None:
                self._keys.add(key, box.tag)
        return box

    def of_key(self, key: IdempotencyKey) -> RentedBox | None:
        """The instance that the first call with this key rented.

        Raises:
            UsageError: `IDEMPOTENCY_CONFLICT`, the key was used for another request.
        """
        tag = self._keys.result(key)
        return None if tag is None else self.of_tag(tag)

    def box(self, tag: str) -> RentedBox | None:
        """The box of a tag, or the newest of a host's name."""
        row = self._connection.execute(
            "SELECT * FROM boxes WHERE tag = ?1 OR host = ?1"
            " ORDER BY tag = ?1 DESC, ended_t IS NULL DESC, intended_t DESC LIMIT 1",
            (tag,),
        ).fetchone()
        return None if row is None else _box(row)

    def of_tag(self, tag: str) -> RentedBox | None:
        """The box of a tag, whatever hosts are called."""
        found = self.box(tag)
        return found if found is not None and found.tag == tag else None

    def of_host(self, host: str) -> RentedBox | None:
        """The open box that a host is; None for a host that is not rented."""
        row = self._connection.execute(
            "SELECT * FROM boxes WHERE host = ? AND ended_t IS NULL", (host,)
        ).fetchone()
        return None if row is None else _box(row)

    def boxes(self, *, only_open: bool = False) -> list[RentedBox]:
        """All boxes, oldest first."""
        where = "WHERE ended_t IS NULL" if only_open else ""
        rows = self._connection.execute(f"SELECT * FROM boxes {where} ORDER BY intended_t, tag")
        return [_box(row) for row in rows]

    def change(
        self,
        tag: str,
        state: RentState | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        when: Callable[[RentedBox], bool] = lambda _box: True,
        **columns: Any,
    ) -> RentedBox:
        """Take a box on to another state, where the table allows it, and note what came with it;
        `body` is merged, `columns` are those of the record. A state that it has passed is kept, and
        all of it where `when` is false for the box as it stands by now."""
        with transaction(self._connection) as connection:
            old = self.box(tag)
            if old is None:
                raise KeyError(tag)
            if not when(old):
                return old
            allowed = state is not None and state in RENT_TRANSITIONS[old.state]
            new = replace(
                old,
                state=state if allowed and state is not None else old.state,
                body={**old.body, **(body or {})},
                **columns,
            )
            connection.execute(
                "REPLACE INTO boxes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", _row(new)
            )
        return new


def _row(box: RentedBox) -> tuple[Any, ...]:
    return (
        box.tag, box.host, box.provider, box.state.value, box.provider_id, box.intended_t,
        box.lease_end_t, box.usd_per_h, box.budget_usd, box.ended_t, json.dumps(dict(box.body)),
    )  # fmt: skip


def _box(row: tuple[Any, ...]) -> RentedBox:
    tag, host, provider, state, provider_id, intended_t, lease_end_t, *rest = row
    usd_per_h, budget_usd, ended_t, body = rest
    return RentedBox(
        tag, host, provider, RentState(state), provider_id, intended_t, lease_end_t,
        usd_per_h, budget_usd, ended_t, json.loads(body),
    )  # fmt: skip
