"""Opening a SQLite file with its schema: migrations under a lock, newer versions refused."""

from __future__ import annotations

import errno
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from trainmaster.errors import StorageError

BUSY_TIMEOUT_S = 30.0
_LEAST_ROOM_BYTES = 1 << 20


def open_database(path: Path, migrations: Sequence[str], *, synchronous: str) -> sqlite3.Connection:
    """A connection in WAL mode and autocommit, its schema brought up to `len(migrations)`.

    `migrations[n]` is the SQL that leads from version n to n + 1. Before an existing database is
    changed, a copy is laid beside it as `<name>.v<version>`.

    Raises:
        StorageError: `HOME_IS_NEWER` where the file was written by a newer version, `DISK_FULL` or
            `ROOT_NOT_WRITABLE` where it can't be created.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        _migrate(connection, path, migrations)
    except (OSError, sqlite3.OperationalError) as error:
        raise StorageError(
            "DISK_FULL" if _is_full(error, path) else "ROOT_NOT_WRITABLE",
            f"{path} can't be opened or created: {error}.",
            "Make the folder writable, free some room, or point TRAINMASTER_HOME elsewhere.",
            retryable=True,
        ) from error
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Everything inside happens, or nothing; others may read meanwhile, but not write."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _is_full(error: OSError | sqlite3.OperationalError, path: Path) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
        return True
    # Where there is no room for the WAL's index, SQLite speaks of an input/output error.
    return path.parent.is_dir() and shutil.disk_usage(path.parent).free < _LEAST_ROOM_BYTES


def _migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[str]) -> None:
    found = _version(connection)
    if found == len(migrations):
        return
    if 0 < found < len(migrations):
        _back_up(connection, path.with_name(f"{path.name}.v{found}.{int(time.time())}"))
    with transaction(connection):
        version = _version(connection)  # another process may have been faster
        if version > len(migrations):
            raise StorageError(
                "HOME_IS_NEWER",
                f"{path} has schema version {version}, this Trainmaster knows {len(migrations)}.",
                "Upgrade Trainmaster, or point TRAINMASTER_HOME at another folder.",
            )
        for statements in migrations[version:]:
            for statement in statements.split(";"):
                if statement.strip():
                    connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(migrations)}")


def _back_up(connection: sqlite3.Connection, path: Path) -> None:
    with closing(sqlite3.connect(path)) as copy:
        connection.backup(copy)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
