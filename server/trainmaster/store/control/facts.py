"""Single values of `control.db`, by name."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from trainmaster.store.database import transaction


class Facts:
    """Each method is one statement; a name's prefix, such as `kaggle_dataset/`, is its owner's."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def get(self, name: str) -> str | None:
        row = self._connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, name: str, value: str) -> None:
        self._connection.execute("REPLACE INTO facts VALUES (?, ?)", (name, value))

    def put_all(self, values: Mapping[str, str]) -> None:
        """In one transaction."""
        if not values:
            return
        with transaction(self._connection) as connection:
            connection.executemany("REPLACE INTO facts VALUES (?, ?)", list(values.items()))

    def put_once(self, name: str, value: str) -> str:
        """The value of a name; `value` where it had none."""
        self._connection.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, value))
        return self.get(name) or value

    def remove(self, name: str) -> None:
        self._connection.execute("DELETE FROM facts WHERE name = ?", (name,))

    def suffixes(self, prefix: str) -> list[str]:
        """What follows `prefix` in each name that begins with it, in order."""
        rows = self._connection.execute(
            "SELECT name FROM facts WHERE substr(name, 1, ?) = ? ORDER BY name",
            (len(prefix), prefix),
        )
        return [name.removeprefix(prefix) for (name,) in rows]
