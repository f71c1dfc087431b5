from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from trainmaster.errors.errors import StorageError
from trainmaster.store.database import open_database, storage_error, transaction
from trainmaster.store.migration import Schema

REPOSITORY = Path(__file__).parents[2]
FIRST = "CREATE TABLE runs (name TEXT)"
SECOND = "ALTER TABLE runs ADD COLUMN host TEXT; CREATE INDEX by_host ON runs (host)"
# Waits for the others, then opens the database with both migrations and leaves a row.
_OPENER = """
import sys
from pathlib import Path
from trainmaster.store.database import open_database
from trainmaster.store.migration import Schema
print("ready", flush=True)
sys.stdin.readline()
connection = open_database(Path(sys.argv[1]), Schema(tuple(sys.argv[2:])), synchronous="NORMAL")
connection.execute("INSERT INTO runs (name, host) VALUES ('x', 'local')")
connection.close()
"""


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def opened(path: Path, *migrations: str) -> sqlite3.Connection:
    return open_database(path, Schema(migrations), synchronous="NORMAL")


def test_a_new_database_has_the_newest_schema_and_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "control.db"
    with closing(opened(path, FIRST, SECOND)) as connection:
        connection.execute("INSERT INTO runs VALUES ('a', 'local')")
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert version(path) == 2
    assert list(path.parent.glob("*.v*")) == []


def test_an_older_database_is_copied_before_it_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "control.db"
    with closing(opened(path, FIRST)) as connection:
        connection.execute("INSERT INTO runs VALUES ('a')")
    with closing(opened(path, FIRST, SECOND)) as connection:
        assert connection.execute("SELECT name, host FROM runs").fetchall() == [("a", None)]
    (backup,) = path.parent.glob("control.db.v1.*")
    with closing(sqlite3.connect(backup)) as connection:
        assert connection.execute("SELECT * FROM runs").fetchall() == [("a",)]
    assert (version(path), version(backup)) == (2, 1)


def test_a_database_of_a_newer_version_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "control.db"
    opened(path, FIRST, SECOND).close()
    with pytest.raises(StorageError) as refused:
        opened(path, FIRST)
    assert refused.value.code == "HOME_IS_NEWER"
    assert "schema version 2" in refused.value.message
    assert version(path) == 2


def test_a_migration_that_fails_leaves_the_old_schema(tmp_path: Path) -> None:
    path = tmp_path / "control.db"
    opened(path, FIRST).close()
    with pytest.raises(StorageError):
        opened(path, FIRST, "CREATE TABLE more (x TEXT); CREATE TABLE runs (name TEXT)")
    assert version(path) == 1
    assert list(tmp_path.glob("*.v*")) == []  # else each call that is refused would leave one
    with closing(opened(path, FIRST)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        assert tables.fetchall() == [("runs",)]


def test_a_database_with_other_tables_is_said_to_be_of_another_version(tmp_path: Path) -> None:
    path = tmp_path / "control.db"
    opened(path, "CREATE TABLE others (name TEXT)").close()
    with pytest.raises(StorageError) as refused:
        opened(path, FIRST, SECOND)
    assert refused.value.code == "HOME_OF_OTHER_VERSION"
    assert "point TRAINMASTER_HOME at a new folder" in refused.value.fix
    assert (version(path), [found.name for found in tmp_path.glob("*.v*")]) == (1, [])


@pytest.mark.parametrize("existing", [False, True])
def test_several_processes_migrating_at_once_all_find_the_new_schema(
    tmp_path: Path, existing: bool
) -> None:
    path = tmp_path / "control.db"
    if existing:
        opened(path, FIRST).close()
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", _OPENER, str(path), FIRST, SECOND],
            env={"PYTHONPATH": f"{REPOSITORY}/server:{REPOSITORY}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    for opener in openers:
        assert opener.stdout is not None and opener.stdout.readline() == "ready\n"
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("\n")
        opener.stdin.flush()
    errors = [opener.communicate(timeout=60)[1] for opener in openers]
    assert errors == [""] * len(openers)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (len(openers),)


def test_a_folder_that_cannot_be_made_is_reported_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError) as refused:
        opened(tmp_path / "file" / "control.db", FIRST)
    assert refused.value.code == "ROOT_NOT_WRITABLE"
    assert "TRAINMASTER_HOME" in refused.value.fix


@pytest.mark.parametrize(
    ("number", "code", "remedy"),
    [
        (errno.ENOSPC, "DISK_FULL", "Free disk space"),
        (errno.EDQUOT, "DISK_FULL", "Free disk space"),
        (errno.EROFS, "ROOT_NOT_WRITABLE", "Make the folder writable"),
        (errno.EACCES, "ROOT_NOT_WRITABLE", "Make the folder writable"),
    ],
)
def test_what_keeps_a_file_of_the_home_from_being_written_has_a_code_and_a_remedy(
    tmp_path: Path, number: int, code: str, remedy: str
) -> None:
    path = tmp_path / "control.db"
    error = storage_error(OSError(number, os.strerror(number), str(path)), path)
    assert (error.code, error.retryable) == (code, True)
    assert str(path) in error.message and os.strerror(number) in error.message
    assert error.fix.startswith(remedy)


def test_everything_in_a_transaction_happens_or_nothing(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "control.db", FIRST)) as connection:
        with pytest.raises(KeyboardInterrupt), transaction(connection):
            connection.execute("INSERT INTO runs VALUES ('a')")
            raise KeyboardInterrupt
        assert connection.execute("SELECT * FROM runs").fetchall() == []
        with transaction(connection):
            connection.execute("INSERT INTO runs VALUES ('b')")
        assert connection.execute("SELECT * FROM runs").fetchall() == [("b",)]
