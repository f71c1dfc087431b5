"""The facts of `control.db` that record network volumes, by tag: intent, lease, cost, release."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from trainmaster.store.control.facts import Facts
from trainmaster.store.database import transaction

_PREFIX = "volume/"


@dataclass(frozen=True, slots=True)
class RentedVolume:
    """A network volume. `name`: the owner's; `tag`: its name at the provider.

    Times are Unix seconds. The lease counts from `intended_t`, billing from `created_t`; `size_gb`
    is in 10^9 bytes; `usd_per_h` and `budget_usd` were agreed to. `create_requested_t`: when its
    provider was asked for it; `provider_id`: None until the provider has answered.
    `release_requested_t`: when its deletion was agreed to; `end_reason`: why it ended, or is to.
    """

    tag: str
    name: str
    provider: str
    region: str
    size_gb: int
    usd_per_h: float
    intended_t: float
    lease_end_t: float
    budget_usd: float
    agreed_by: str | None = None
    create_requested_t: float | None = None
    created_t: float | None = None
    provider_id: str | None = None
    release_requested_t: float | None = None
    end_reason: str | None = None
    ended_t: float | None = None

    @property
    def open(self) -> bool:
        return self.ended_t is None

    @property
    def state(self) -> Literal["intended", "ready", "releasing", "ended"]:
        if not self.open:
            return "ended"
        if self.release_requested_t is not None:
            return "releasing"
        return "intended" if self.provider_id is None else "ready"


_FIELDS = frozenset(each.name for each in fields(RentedVolume))


class VolumeRecords:
    """Each method but `put` is one transaction."""

    def __init__(self, connection: sqlite3.Connection, facts: Facts) -> None:
        self._connection = connection
        self._facts = facts

    def all(self, *, only_open: bool = False) -> list[RentedVolume]:
        """All volumes, oldest first."""
        rows = [_decoded(self._facts.get(_PREFIX + tag)) for tag in self._facts.suffixes(_PREFIX)]
        volumes = sorted((row for row in rows if row is not None), key=lambda row: row.intended_t)
        return [volume for volume in volumes if volume.open or not only_open]

    def find(self, name: str) -> RentedVolume | None:
        """The volume with this tag, else the newest one of this name, an open one first."""
        named = [volume for volume in self.all() if name in (volume.tag, volume.name)]
        return max(named, key=lambda volume: (volume.tag == name, volume.open, volume.intended_t),
                   default=None)  # fmt: skip

    def put(self, volume: RentedVolume) -> None:
        """Record a volume; within a transaction of the caller's, if there is one."""
        self._facts.put(_PREFIX + volume.tag, json.dumps(asdict(volume)))

    def change(self, tag: str, **changes: Any) -> RentedVolume:
        with transaction(self._connection):
            old = _decoded(self._facts.get(_PREFIX + tag))
            if old is None:
                raise KeyError(tag)
            new = replace(old, **changes)
            self.put(new)
        return new


def _decoded(text: str | None) -> RentedVolume | None:
    if text is None:
        return None
    return RentedVolume(**{key: value for key, value in json.loads(text).items() if key in _FIELDS})
