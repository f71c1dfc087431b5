"""Brings a database's tables up to this version's, from any version that was ever released.

A database is recognized by its tables (`schema_digest`), not by its number alone: between releases
tables were once renamed under the same number. What is not recognized is left as it is.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from trainer_runtime import __version__
from trainer_runtime.core.files.durable import sync_folder
from trainer_runtime.core.protocol.command import command
from trainmaster.errors.errors import StorageError
from trainmaster.home.paths import Home

Step = str | Callable[[sqlite3.Connection], None]
# In the table `facts`: the version of Trainmaster that made or migrated the database.
WRITTEN_BY = "written_by"
_BACKUP_ON_ITS_WAY = "backup.part"


@dataclass(frozen=True, slots=True)
class Schema:
    """`steps[n]` leads from version n to n + 1.

    `released`: the digest of each version's tables, from 1 on; without any, nothing is recognized
    and numbers count. `variants`: digests of other tables that bore a version's number, with that
    number and what makes them that version's. `fills`: SQL for what every such database holds.
    """

    steps: tuple[Step, ...]
    released: tuple[str, ...] = ()
    variants: Mapping[str, tuple[int, Step]] = field(default_factory=dict)
    fills: str = ""

    @property
    def version(self) -> int:
        return len(self.steps)


def version_of(connection: sqlite3.Connection) -> int:
    """The schema's version, 0 in an empty file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def upgrade(connection: sqlite3.Connection, path: Path, schema: Schema, *, keeps: bool) -> None:
    """Take all steps that are missing, within the caller's transaction, which no other process
    writes beside. `keeps`: the database is copied to `<name>.v<version>.<time>` first.

    Raises:
        StorageError: `HOME_IS_NEWER`, `HOME_OF_OTHER_VERSION`; nothing was changed.
        OSError, sqlite3.Error: the copy or the steps find no room.
    """
    version = version_of(connection)
    if version == schema.version:
        return  # another process was faster
    refuse_newer(connection, path, schema.version)
    first = _first_step(connection, path, schema, version)
    backup = _back_up(path, version) if keeps and version > 0 else None
    try:
        for step in (*first, *schema.steps[version:]):
            take(connection, step)
        if schema.released:
            assert schema_digest(connection) == schema.released[-1], "the steps lead elsewhere"
            connection.execute("REPLACE INTO facts VALUES (?, ?)", (WRITTEN_BY, __version__))
            take(connection, schema.fills)
        connection.execute(f"PRAGMA user_version = {schema.version}")
    except BaseException as error:
        if backup is not None:
            backup.unlink(missing_ok=True)  # nothing was changed
        if isinstance(error, (ValueError, TypeError, AttributeError)):
            raise _damaged(path, error) from error
        raise


def refuse_newer(connection: sqlite3.Connection, path: Path, newest: int) -> None:
    """Raises:
    StorageError: `HOME_IS_NEWER`, with the version of Trainmaster that wrote it, if it says so.
    """
    if (version := version_of(connection)) <= newest:
        return
    writer = None
    with suppress(sqlite3.Error):
        row = connection.execute("SELECT value FROM facts WHERE name = ?", (WRITTEN_BY,)).fetchone()
        writer = None if row is None else str(row[0])
    raise StorageError(
        "HOME_IS_NEWER",
        f"{path} has schema version {version}"
        f"{f', of Trainmaster {writer}' if writer else ''}; "
        f"this Trainmaster, {__version__}, reads versions up to {newest}. Nothing was changed.",
        f"Install {f'Trainmaster {writer} or a later one' if writer else 'a newer Trainmaster'}, "
        f"or restore the copy {path.name}.v{newest}.* that lies beside it, or point "
        "TRAINMASTER_HOME at another folder.",
    )


def schema_digest(connection: sqlite3.Connection) -> str:
    """A digest of all tables, columns and indexes, however their SQL is written."""
    parts = []
    objects = connection.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY 1, 2"
    ).fetchall()
    for kind, name, sql in objects:
        columns = connection.execute("SELECT * FROM pragma_table_info(?)", (name,)).fetchall()
        parts.append((kind, name, columns if kind == "table" else " ".join(sql.split())))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _first_step(
    connection: sqlite3.Connection, path: Path, schema: Schema, version: int
) -> tuple[Step, ...]:
    """What makes the tables those of their version: nothing, for most.

    Raises:
        StorageError: `HOME_OF_OTHER_VERSION`, they are of no version that was released.
    """
    if not schema.released:
        return ()
    digest = schema_digest(connection)
    if version == 0:
        _refuse_lost(path)
    if digest == (_EMPTY if version == 0 else schema.released[version - 1]):
        return ()
    if (variant := schema.variants.get(digest)) is not None and variant[0] == version:
        return (variant[1],)
    raise other_version(path, f"{digest} under the number {version}")


def _refuse_lost(path: Path) -> None:
    """A new database is none where the home mirrors runs: theirs is missing or was emptied.

    Raises:
        StorageError: `DATABASE_DAMAGED`.
    """
    mirror = Home(path.parent).mirror
    if not mirror.is_dir() or not any(mirror.iterdir()):
        return
    raise StorageError(
        "DATABASE_DAMAGED",
        f"{path} is missing or empty, but {mirror} holds the logs of runs; nothing was changed.",
        f"Restore {path.name} from a backup. Without one, move {mirror} elsewhere and add the "
        f"hosts again: {command('hosts recover', 'HOST')} finds the runs that lie on one. Check "
        "your providers for rented instances.",
    )


def other_version(path: Path, what: str) -> StorageError:
    """`what`: the tables, or the message about the one that is missing."""
    return StorageError(
        "HOME_OF_OTHER_VERSION",
        f"{path} has tables that no released version of Trainmaster up to {__version__} wrote "
        f"({what}); nothing was changed.",
        f"Use the version of Trainmaster that wrote it, or a later one than {__version__}; "
        "restore control.db from a backup; or point TRAINMASTER_HOME at a new folder: "
        f"{command('hosts recover', 'HOST')} then finds the runs that lie on a host.",
    )


def _damaged(path: Path, error: Exception) -> StorageError:
    return StorageError(
        "DATABASE_DAMAGED",
        f"A record in {path} can't be read ({type(error).__name__}); nothing was changed.",
        f"Restore control.db from a backup; {command('hosts recover', 'HOST')} then "
        "finds later runs.",
    )


def take(connection: sqlite3.Connection, step: Step) -> None:
    """One step, within the caller's transaction."""
    if callable(step):
        step(connection)
        return
    for statement in step.split(";"):
        if statement.strip():
            connection.execute(statement)


def _back_up(path: Path, version: int) -> Path:
    """A durable copy of what was last committed; a kill leaves one unfinished file at most."""
    unfinished = path.with_name(f"{path.name}.{_BACKUP_ON_ITS_WAY}")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(unfinished)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, complete by itself
        os.fsync(descriptor)
        backup = path.with_name(f"{path.name}.v{version}.{int(time.time())}")
        os.replace(unfinished, backup)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    sync_folder(path.parent)
    return backup


_EMPTY = hashlib.sha256(repr([]).encode()).hexdigest()[:16]
