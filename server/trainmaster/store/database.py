"""Opens SQLite databases: migrations under a lock, newer schemas refused."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from trainmaster.store.damage import (
    holder,
    is_damage,
    is_lock,
    is_marked,
    mark_damaged,
    set_aside,
)
from trainmaster.words.errors import StorageError

BUSY_TIMEOUT_S = 30.0
_DERIVED = "metrics.db"
_LEAST_FREE_BYTES = 1 << 20


def open_database(path: Path, migrations: Sequence[str], *, synchronous: str) -> sqlite3.Connection:
    """A connection in WAL mode and autocommit, its schema brought up to `len(migrations)`.

    `migrations[n]` is the SQL that leads from version n to n + 1. An existing database is copied to
    `<name>.v<version>.<time>` before it is changed.

    Raises:
        StorageError: `HOME_IS_NEWER` where the file was written by a newer version, `DISK_FULL` or
            `ROOT_NOT_WRITABLE` where it can't be created, `DATABASE_DAMAGED`,
            `HOME_OF_OTHER_VERSION` where it has other tables than a version's number says.
    """
    try:
        connection = _connect(path, synchronous)
        _migrate(connection, path, migrations)
    except (OSError, sqlite3.Error) as error:
        raise storage_error(error, path) from error
    return connection


def open_derived_database(
    path: Path, schema: str, version: int, *, synchronous: str
) -> sqlite3.Connection:
    """The same for a database that can be rebuilt: the contents of an older version are dropped,
    and the database is created again with `schema`. A damaged one is set aside.

    Raises:
        StorageError: as above.
    """
    try:
        if is_marked(path):
            set_aside(path)
        try:
            return _open_derived(path, schema, version, synchronous)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            set_aside(path)
            return _open_derived(path, schema, version, synchronous)
    except (OSError, sqlite3.Error) as error:
        raise storage_error(error, path) from error


def _open_derived(path: Path, schema: str, version: int, synchronous: str) -> sqlite3.Connection:
    connection = _connect(path, synchronous)
    try:
        if version_of(connection) != version:
            _recreate(connection, path, schema, version)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def version_of(connection: sqlite3.Connection) -> int:
    """The schema's version, 0 in an empty file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _connect(path: Path, synchronous: str) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    _create_private(path)
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    _enter_wal(connection)
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    return connection


def _create_private(path: Path) -> None:
    """SQLite gives its other files the permissions of the database.

    A file that exists is never opened here: its closing would end the locks of this process.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _enter_wal(connection: sqlite3.Connection) -> None:
    """Retries: the busy timeout does not cover this pragma when others open a new file too."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY  # the primary result code
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def storage_error(error: OSError | sqlite3.Error, path: Path) -> StorageError:
    """The error of a database in the home, such as the one at `path`, with its fix."""
    if is_lock(error):
        return _locked_error(path)
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        mark_damaged(path.with_name(_DERIVED))
        return StorageError(
            "DATABASE_DAMAGED",
            f"A database in {path.parent} can't be read: {error}.",
            f"Run the command again: {_DERIVED} is set aside and rebuilt by itself. If that does "
            "not help, restore control.db from a backup.",
            retryable=True,
        )
    if _lacks_part_of_schema(error):
        return StorageError(
            "HOME_OF_OTHER_VERSION",
            f"{path} does not have this version's tables ({error}); nothing was changed.",
            "Use the version of Trainmaster that wrote it, or point TRAINMASTER_HOME at a new "
            "folder.",
        )
    return StorageError(
        "DISK_FULL" if _is_full(error, path) else "ROOT_NOT_WRITABLE",
        f"{path} can't be used: {error}.",
        "Make the folder writable, free disk space, or point TRAINMASTER_HOME elsewhere.",
        retryable=True,
    )


def _locked_error(path: Path) -> StorageError:
    pid = holder(path) or holder(path.with_name(_DERIVED))
    who = f"process {pid}" if pid is not None else "another process"
    return StorageError(
        "DATABASE_LOCKED",
        f"A database in {path.parent} was held by {who} for more than {BUSY_TIMEOUT_S:.0f} s.",
        f"Wait until it ends, or end it ({f'kill {pid}' if pid is not None else 'see `ps`'}), "
        "then retry.",
        retryable=True,
    )


def is_of_the_database(error: BaseException) -> bool:
    """Whether a database itself is at fault, and not the values that were to be stored."""
    if isinstance(error, (StorageError, sqlite3.OperationalError)):
        return True
    return type(error) is sqlite3.DatabaseError


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """All statements inside take effect, or none; others may read meanwhile, but not write."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        if connection.in_transaction:  # SQLite itself rolls back when the disk is full
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _is_full(error: OSError | sqlite3.Error, path: Path) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        return True
    # Without space for the WAL's index, SQLite reports an input/output error.
    return path.parent.is_dir() and shutil.disk_usage(path.parent).free < _LEAST_FREE_BYTES


def _lacks_part_of_schema(error: OSError | sqlite3.Error) -> bool:
    """Whether a statement names a table or column that the file does not have."""
    return isinstance(error, sqlite3.OperationalError) and str(error).startswith(
        ("no such table", "no such column")
    )


def _migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[str]) -> None:
    found = version_of(connection)
    if found == len(migrations):
        return
    backup = path.with_name(f"{path.name}.v{found}.{int(time.time())}")
    if 0 < found < len(migrations):
        _back_up(connection, backup)
    try:
        _bring_up(connection, path, migrations)
    except BaseException:
        backup.unlink(missing_ok=True)  # nothing was changed
        raise


def _bring_up(connection: sqlite3.Connection, path: Path, migrations: Sequence[str]) -> None:
    with transaction(connection):
        version = version_of(connection)  # another process may have been faster
        _refuse_newer(path, version, len(migrations))
        for statements in migrations[version:]:
            _execute_all(connection, statements)
        connection.execute(f"PRAGMA user_version = {len(migrations)}")


def _recreate(connection: sqlite3.Connection, path: Path, schema: str, version: int) -> None:
    with transaction(connection):
        found = version_of(connection)  # another process may have been faster
        _refuse_newer(path, found, version)
        if found == version:
            return
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (name,) in tables.fetchall():
            connection.execute(f'DROP TABLE "{name}"')
        _execute_all(connection, schema)
        connection.execute(f"PRAGMA user_version = {version}")


def _refuse_newer(path: Path, found: int, known: int) -> None:
    if found > known:
        raise StorageError(
            "HOME_IS_NEWER",
            f"{path} has schema version {found}, this Trainmaster knows {known}.",
            "Upgrade Trainmaster, or point TRAINMASTER_HOME at another folder.",
        )


def _execute_all(connection: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";"):
        if statement.strip():
            connection.execute(statement)


def _back_up(connection: sqlite3.Connection, path: Path) -> None:
    _create_private(path)
    with closing(sqlite3.connect(path)) as copy:
        connection.backup(copy)
