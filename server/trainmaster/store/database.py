"""Opens SQLite databases, with their tables brought up to date; says what is wrong with them.

`metrics.db` is derived: where it is damaged it is renamed, and rebuilt from the mirror. A
process that finds damage leaves a mark beside it; the next one to open it sets it aside.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from trainer_runtime.core.files.durable import lock_within
from trainer_runtime.core.protocol.figures import spoken_duration
from trainmaster.errors.errors import StorageError
from trainmaster.store.disk_space import (
    DISK_FULL,
    REMEDIES,
    is_lack_of_room,
    lack_of_room,
    why_full,
)
from trainmaster.store.migration import (
    Schema,
    other_version,
    refuse_newer,
    take,
    upgrade,
    version_of,
)
from trainmaster.store.reserve import leaves_margin

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_LOCK_S = 30.0
_SUFFIXES = ("", "-wal", "-shm")
_LOCKS = Path("/proc/locks")
BUSY_TIMEOUT_S = 30.0
_DERIVED = "metrics.db"
# Of a transaction of a few MiB of lines: its log, and what it then changes in the database.
_LEAST_GROWTH_BYTES = 1 << 20


def open_database(path: Path, schema: Schema, *, synchronous: str) -> sqlite3.Connection:
    """A connection in WAL mode and autocommit, its tables brought up to `schema`. An existing
    database is copied to `<name>.v<version>.<time>` before it is changed.

    Raises:
        StorageError: `HOME_IS_NEWER` where the file was written by a newer version, `DISK_FULL`,
            `NO_INODES` or `ROOT_NOT_WRITABLE` where it can't be written, `DATABASE_DAMAGED`,
            `HOME_OF_OTHER_VERSION` where it has other tables than a version's number says.
    """
    try:
        connection = _connect(path, synchronous)
        try:
            with readable_damage():
                _migrate(connection, path, schema)
        except BaseException:
            connection.close()  # else its locks stay as long as its traceback
            raise
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
        with readable_damage():
            if version_of(connection) != version:
                _recreate(connection, path, schema, version)
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path, synchronous: str) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    _create_private(path)
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        with readable_damage():
            _enter_wal(connection)
            connection.execute(f"PRAGMA synchronous = {synchronous}")
    except BaseException:
        connection.close()
        raise
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
        return other_version(path, str(error))
    code, reason = lack_of_room(path.parent, error)
    return StorageError(
        code,
        f"{path} can't be written: {reason or error}.",
        f"{REMEDIES[code]}, or point TRAINMASTER_HOME elsewhere.",
        retryable=True,
    )


def out_of_room(path: Path) -> StorageError | None:
    """The error of what would grow a database, where its disk has its margin left; None where there
    is more."""
    if leaves_margin(path.parent, _LEAST_GROWTH_BYTES):
        return None
    reason = (why_full(path.parent) or ("", "its disk has only its margin of free space left"))[1]
    return StorageError(
        DISK_FULL,
        f"{path} can't be written: {reason}.",
        f"{REMEDIES[DISK_FULL]}, or point TRAINMASTER_HOME elsewhere.",
        retryable=True,
    )


def as_storage_error(error: OSError | sqlite3.Error | StorageError, path: Path) -> StorageError:
    """The same for an error that may be one of ours already."""
    return error if isinstance(error, StorageError) else storage_error(error, path)


def _locked_error(path: Path) -> StorageError:
    pid = holder(path) or holder(path.with_name(_DERIVED))
    who = f"process {pid}" if pid is not None else "another process"
    return StorageError(
        "DATABASE_LOCKED",
        f"A database in {path.parent} was held by {who} for more than "
        f"{spoken_duration(BUSY_TIMEOUT_S)}.",
        f"Wait until it ends, or end it ({f'kill {pid}' if pid is not None else 'see `ps`'}), "
        "then retry.",
        retryable=True,
    )


def is_of_the_database(error: BaseException) -> bool:
    """Whether a database itself is at fault, or the home's disk, and not the values that were to be
    stored."""
    if isinstance(error, (StorageError, sqlite3.OperationalError)):
        return True
    if isinstance(error, OSError) and is_lack_of_room(error):
        return True
    return type(error) is sqlite3.DatabaseError


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """All statements inside take effect, or none; others may read meanwhile, but not write."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite itself rolls back when the disk is full
            connection.execute("ROLLBACK")
        raise


def _lacks_part_of_schema(error: OSError | sqlite3.Error) -> bool:
    """Whether a statement names a table or column that the file does not have."""
    return isinstance(error, sqlite3.OperationalError) and str(error).startswith(
        ("no such table", "no such column")
    )


def _migrate(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    if version_of(connection) != schema.version:
        refuse_newer(connection, path, schema.version)
        with transaction(connection):
            upgrade(connection, path, schema, keeps=True)


def _recreate(connection: sqlite3.Connection, path: Path, schema: str, version: int) -> None:
    with transaction(connection):
        version_there = version_of(connection)  # another process may have been faster
        refuse_newer(connection, path, version)
        if version_there == version:
            return
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (name,) in tables.fetchall():
            connection.execute(f'DROP TABLE "{name}"')
        take(connection, schema)
        connection.execute(f"PRAGMA user_version = {version}")


@contextmanager
def readable_damage() -> Iterator[None]:
    """Raise `sqlite3.DatabaseError` where SQLite's message quotes a damaged name, which Python's
    module can't decode."""
    try:
        yield
    except UnicodeDecodeError as error:
        damage = sqlite3.DatabaseError("malformed database schema")
        damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damage from error


def is_damage(error: BaseException) -> bool:
    """Whether SQLite reports that a file is damaged, or no database."""
    if not isinstance(error, sqlite3.DatabaseError):
        return False
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _DAMAGE


def is_lock(error: BaseException) -> bool:
    """Whether SQLite gave up waiting for another process."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.Error) and code is not None and code & 0xFF in _BUSY


def mark_damaged(path: Path) -> None:
    """Have the next one who opens the database check it."""
    with suppress(OSError):
        os.close(os.open(_mark(path), os.O_WRONLY | os.O_CREAT, 0o600))


def is_marked(path: Path) -> bool:
    return _mark(path).exists()


def set_aside(path: Path) -> None:
    """Rename a damaged database to `<name>.damaged.<time>`, with its log; one that is whole stays.

    Safe against others who find the same damage.

    Raises:
        OSError: it can't be renamed.
    """
    lock = lock_within(path.with_name(f"{path.name}.lock"), _LOCK_S)
    if lock is None:
        return
    try:
        if not _is_whole(path):
            name = f"{path.name}.damaged.{int(time.time())}"
            for suffix in _SUFFIXES:
                with suppress(FileNotFoundError):
                    os.replace(f"{path}{suffix}", path.with_name(f"{name}{suffix}"))
        _mark(path).unlink(missing_ok=True)
    finally:
        os.close(lock)


def holder(path: Path) -> int | None:
    """The process that holds the database's write lock, as far as the kernel says."""
    inodes = set()
    for suffix in _SUFFIXES:
        with suppress(OSError):
            inodes.add(os.stat(f"{path}{suffix}").st_ino)
    with suppress(OSError, ValueError, IndexError):
        for line in _LOCKS.read_text().splitlines():
            words = line.split()
            is_ours = int(words[5].rpartition(":")[2]) in inodes
            if is_ours and words[3] == "WRITE" and int(words[4]) != os.getpid():
                return int(words[4])
    return None


def _is_whole(path: Path) -> bool:
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)
        with closing(connection) as opened, readable_damage():
            return bool(opened.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.Error as error:
        return not is_damage(error)


def _mark(path: Path) -> Path:
    return path.with_name(f"{path.name}.damaged")
