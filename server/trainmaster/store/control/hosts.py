"""The hosts that a user has registered."""

from __future__ import annotations

import json
import sqlite3

from trainer_runtime.core.protocol.command import command
from trainmaster.errors.errors import HostError
from trainmaster.store.database import transaction
from trainmaster.store.host_record import HostRecord


class HostRecords:
    """Each method is one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def put_host(self, host: HostRecord, t: float, *, new: bool = False) -> None:
        """Record a host, or what has changed about it.

        Raises:
            HostError: `HOST_EXISTS`, `new` was requested and the name is taken.
        """
        with transaction(self._connection) as connection:
            if new and self.host(host.name) is not None:
                raise HostError(
                    "HOST_EXISTS",
                    f"A host is called {host.name!r} already.",
                    f"Take another name, or {command('hosts remove', host.name)} first.",
                )
            connection.execute(
                "INSERT INTO hosts VALUES (?1, ?2, ?3)"
                " ON CONFLICT (name) DO UPDATE SET body = excluded.body",
                (host.name, json.dumps(host.to_dict()), t),
            )

    def host(self, name: str) -> HostRecord | None:
        row = self._connection.execute("SELECT body FROM hosts WHERE name = ?", (name,)).fetchone()
        return HostRecord(**json.loads(row[0])) if row else None

    def hosts(self) -> list[HostRecord]:
        """All hosts, by name."""
        rows = self._connection.execute("SELECT body FROM hosts ORDER BY name")
        return [HostRecord(**json.loads(row[0])) for row in rows]

    def remove_host(self, name: str) -> None:
        self._connection.execute("DELETE FROM hosts WHERE name = ?", (name,))
