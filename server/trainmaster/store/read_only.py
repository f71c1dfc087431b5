"""Databases of a home that can't be written, read as they are: nothing is created beside them. What
is not there yet is empty, in memory.

SQLite's log needs a writable index file, even for reading. Here the index is kept in memory,
without locks. Where the index file can't be made, no other process has the database open to write;
should one begin to, an answer may mix two states of the database.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from trainmaster.store.migration import Schema, refuse_newer, upgrade, version_of

_MEMORY = ":memory:"


def open_read_only(path: Path, schema: Schema) -> sqlite3.Connection:
    """A connection that refuses every change; an older version's tables are migrated in memory.

    Raises:
        StorageError: `HOME_IS_NEWER`, `HOME_OF_OTHER_VERSION`.
        sqlite3.Error: it can't be read either.
    """
    connection = _connect(path) if _is_there(path) else sqlite3.connect(_MEMORY)
    try:
        refuse_newer(connection, path, schema.version)
        if version_of(connection) != schema.version:
            connection = _migrated(connection, path, schema)
    except BaseException:
        connection.close()
        raise
    connection.execute("PRAGMA query_only = ON")
    return connection


def derived_read_only(path: Path, schema: str, version: int) -> sqlite3.Connection:
    """The same of a database that can be rebuilt; an empty one in memory, where there is none of
    this version."""
    try:
        connection = _connect(path)
        if version_of(connection) == version:
            connection.execute("PRAGMA query_only = ON")
            return connection
        connection.close()
    except sqlite3.Error:
        pass
    connection = sqlite3.connect(_MEMORY, isolation_level=None)
    connection.executescript(schema)
    connection.execute(f"PRAGMA user_version = {version}")
    return connection


def _is_there(path: Path) -> bool:
    """False also for one that was begun when there was no room for its tables."""
    return path.is_file() and path.stat().st_size > 0


def _connect(path: Path) -> sqlite3.Connection:
    place = path.absolute().as_uri()
    connection = sqlite3.connect(f"{place}?mode=ro&vfs=unix-none", uri=True, isolation_level=None)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # the log's index is in memory
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        # Without a log, which can't be created: all is in the database.
        connection = sqlite3.connect(f"{place}?immutable=1", uri=True, isolation_level=None)
    return connection


def _migrated(connection: sqlite3.Connection, path: Path, schema: Schema) -> sqlite3.Connection:
    copy = sqlite3.connect(_MEMORY, isolation_level=None)
    connection.backup(copy)
    connection.close()
    copy.execute("BEGIN")
    upgrade(copy, path, schema, keeps=False)
    copy.execute("COMMIT")
    return copy
