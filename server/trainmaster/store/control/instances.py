"""The tables of `control.db` that record rented instances: intent, lease, cost, release.

An instance is recorded before its provider is asked to create it, and its tag is part of its name
at the provider. If the reply to the request is lost, the provider's list shows whether the instance
exists; the request is never repeated blindly.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from typing import Any

from trainmaster.errors.errors import TrainmasterError
from trainmaster.store.control.facts import Facts
from trainmaster.store.control.idempotency import IdempotencyKey, IdempotencyKeys
from trainmaster.store.database import transaction


class RentState(str, Enum):
    """`intended`: recorded; the provider may have been asked. `created`: it exists and boots."""

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
class Timeouts:
    """`boot_s`: from the create request to the first successful SSH command; pulling an image of
    tens of GiB takes ten minutes. `late_s`: how long a created instance may be missing from the
    provider's list. `gone_s`: pause before the second check that an instance no longer exists."""

    boot_s: float = 900.0
    late_s: float = 120.0
    gone_s: float = 3.0


DEFAULT_TIMEOUTS = Timeouts()


@dataclass(frozen=True, slots=True)
class RequestedInstance:
    """What the provider is asked for besides the offer; None leaves it to the provider."""

    disk_gib: int
    max_usd_per_h: float
    image: str | None = None
    region: str | None = None


@dataclass(frozen=True, slots=True)
class ReleaseRequest:
    """`force`: stop the runs, and give up data that can't be copied. `reason` becomes the
    instance's `end_reason`."""

    requested_t: float
    force: bool
    reason: str
    agreed_by: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedError:
    """A `TrainmasterError` as a record keeps it."""

    code: str
    message: str
    fix: str
    retryable: bool = False
    field: str | None = None

    @classmethod
    def of(cls, error: TrainmasterError) -> RecordedError:
        return cls(error.code, error.message, error.fix, error.retryable, error.field)


@dataclass(frozen=True, slots=True)
class RentedInstance:
    """A rented instance. `host`: the name of the host that it is, or will become.

    Times are Unix seconds. The lease counts from `intended_t`, billing from `created_t`.
    `usd_per_h` and `budget_usd` were agreed to. The fields up to `ended_t` are columns of the
    table; the others are stored as JSON in `body`:

    - `offer`: the `Offer` as a mapping; `requested`, `root` and `timeouts`: how it was asked for.
    - `lease_timer`: what the instance's own timer does at the lease's end, in words;
      `can_self_terminate`: whether that includes ending the instance.
    - `create_requested_t`, `first_listed_t`, `ready_t`, `timer_checked_t`, `end_requested_t`: when
      each happened first (`timer_checked_t`: last).
    - `boot_problem`: why it is not ready yet; `last_error`: why nothing progresses.
    - `release`: the pending request; `release_refusal`: why the last one was refused, at
      `release_refused_t`.
    - `keep`: it is not released when it is idle; `volume`: the tag of its network volume.
    - `mirrored_runs`, `loss`: runs copied before the end, and why some data was lost.
    - `end_reason`, `end_error`: why it was ended, or could not be created.
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
    offer: Mapping[str, Any] = field(default_factory=dict)
    requested: RequestedInstance | None = None
    root: str | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    agreed_by: str | None = None
    lease_timer: str = ""
    can_self_terminate: bool = False
    create_requested_t: float | None = None
    created_t: float | None = None
    first_listed_t: float | None = None
    ready_t: float | None = None
    timer_checked_t: float | None = None
    end_requested_t: float | None = None
    boot_problem: str | None = None
    last_error: RecordedError | None = None
    release: ReleaseRequest | None = None
    release_refusal: RecordedError | None = None
    release_refused_t: float | None = None
    keep: bool | None = None
    volume: str | None = None
    mirrored_runs: tuple[str, ...] = ()
    loss: str | None = None
    end_reason: str | None = None
    end_error: RecordedError | None = None

    @property
    def open(self) -> bool:
        return self.ended_t is None


_COLUMNS = 10
_BODY_FIELDS = tuple(each.name for each in fields(RentedInstance))[_COLUMNS:]
_BODY_TYPES: dict[str, Callable[..., Any]] = {
    "requested": RequestedInstance,
    "timeouts": Timeouts,
    "last_error": RecordedError,
    "release": ReleaseRequest,
    "release_refusal": RecordedError,
    "end_error": RecordedError,
}


class InstanceRecords:
    """Each method is one transaction."""

    def __init__(self, connection: sqlite3.Connection, facts: Facts, keys: IdempotencyKeys) -> None:
        self._connection = connection
        self._facts = facts
        self._keys = keys

    def home_id(self) -> str:
        """Distinguishes this home's tags from other homes' tags in one account; never changes."""
        return self._facts.put_once("home_id", secrets.token_hex(3))

    def add(
        self,
        instance: RentedInstance,
        key: IdempotencyKey | None = None,
        check: Callable[[Sequence[RentedInstance]], None] = lambda _instances: None,
    ) -> RentedInstance:
        """Record an intent; where `key` was used before, return the instance recorded for it.

        `check` gets all instances on record and raises if another one is not allowed; no other
        process adds one meanwhile.

        Raises:
            UsageError: `IDEMPOTENCY_CONFLICT`, the key was used for another request.
        """
        with transaction(self._connection) as connection:
            if key is not None and (earlier := self.of_key(key)) is not None:
                return earlier
            check(self.all())
            connection.execute(
                "INSERT INTO instances VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", _to_row(instance)
            )
            if key is not None:
                self._keys.add(key, instance.tag)
        return instance

    def of_key(self, key: IdempotencyKey) -> RentedInstance | None:
        """The instance that the first call with this key rented.

        Raises:
            UsageError: `IDEMPOTENCY_CONFLICT`, the key was used for another request.
        """
        tag = self._keys.result(key)
        return None if tag is None else self.find(tag)

    def find(self, name: str) -> RentedInstance | None:
        """The instance with this tag, else the newest one with this host name."""
        row = self._connection.execute(
            "SELECT * FROM instances WHERE tag = ?1 OR host = ?1"
            " ORDER BY tag = ?1 DESC, ended_t IS NULL DESC, intended_t DESC LIMIT 1",
            (name,),
        ).fetchone()
        return None if row is None else _from_row(row)

    def by_tag(self, tag: str) -> RentedInstance | None:
        """The instance with this tag; host names are ignored."""
        instance = self.find(tag)
        return instance if instance is not None and instance.tag == tag else None

    def by_host(self, host: str) -> RentedInstance | None:
        """The open instance behind a host; None for a host that is not rented."""
        row = self._connection.execute(
            "SELECT * FROM instances WHERE host = ? AND ended_t IS NULL", (host,)
        ).fetchone()
        return None if row is None else _from_row(row)

    def all(self, *, only_open: bool = False) -> list[RentedInstance]:
        """All instances, oldest first."""
        where = "WHERE ended_t IS NULL" if only_open else ""
        rows = self._connection.execute(f"SELECT * FROM instances {where} ORDER BY intended_t, tag")
        return [_from_row(row) for row in rows]

    def change(
        self,
        tag: str,
        state: RentState | None = None,
        *,
        when: Callable[[RentedInstance], bool] = lambda _instance: True,
        **changes: Any,
    ) -> RentedInstance:
        """Move an instance to another state, if the transition table allows it, and set fields.

        A state that was passed already is kept. Nothing changes if `when` is false for the record
        as it is now.
        """
        with transaction(self._connection) as connection:
            old = self.find(tag)
            if old is None:
                raise KeyError(tag)
            if not when(old):
                return old
            allowed = state is not None and state in RENT_TRANSITIONS[old.state]
            new_state = state if allowed and state is not None else old.state
            new = replace(old, state=new_state, **changes)
            connection.execute(
                "REPLACE INTO instances VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", _to_row(new)
            )
        return new


def _to_row(instance: RentedInstance) -> tuple[Any, ...]:
    document = asdict(instance)
    body = {name: document[name] for name in _BODY_FIELDS if document[name] is not None}
    return (
        instance.tag, instance.host, instance.provider, instance.state.value, instance.provider_id,
        instance.intended_t, instance.lease_end_t, instance.usd_per_h, instance.budget_usd,
        instance.ended_t, json.dumps(body),
    )  # fmt: skip


def _from_row(row: tuple[Any, ...]) -> RentedInstance:
    tag, host, provider, state, *columns, body = row
    details = {
        name: _decoded(name, value)
        for name, value in json.loads(body).items()
        if name in _BODY_FIELDS
    }
    return RentedInstance(tag, host, provider, RentState(state), *columns, **details)


def _decoded(name: str, value: Any) -> Any:
    kind = _BODY_TYPES.get(name)
    if kind is not None:
        return kind(**value)
    return tuple(value) if isinstance(value, list) else value
