"""Damaged and locked databases: set aside and rebuilt, or reported with their holder."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from trainmaster.store.database import holder, mark_damaged, storage_error
from trainmaster.store.metrics_store import MetricsStore

_HOLDING = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with closing(MetricsStore(tmp_path / "metrics.db").connection) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return tmp_path / "metrics.db"


def aside(path: Path) -> list[str]:
    names = [found.name for found in path.parent.iterdir()]
    return [name for name in names if ".damaged." in name and not name.endswith(("-wal", "-shm"))]


def opened_is_new(path: Path) -> bool:
    store = MetricsStore(path)
    try:
        return store.replay_due
    finally:
        store.close()


@pytest.mark.parametrize("content", [b"no database at all" * 1000, b"\x00" * 8192])
def test_a_file_that_is_no_database_is_set_aside(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert opened_is_new(path)
    assert len(aside(path)) == 1


def test_damage_that_a_query_meets_is_set_aside_when_it_is_opened_next(path: Path) -> None:
    store = MetricsStore(path)
    with store.writing():
        store.replayed()
    store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    connection = sqlite3.connect(path)
    with closing(connection), pytest.raises(sqlite3.DatabaseError) as caught:
        connection.execute("SELECT * FROM offsets").fetchall()
    assert storage_error(caught.value, path).code == "DATABASE_DAMAGED"
    assert opened_is_new(path)
    assert len(aside(path)) == 1


def test_a_damaged_name_that_is_no_text_is_damage_all_the_same(path: Path) -> None:
    data = path.read_bytes()
    row = b"tableoffsetsoffsets"  # its kind, its name, its table's
    damaged = data.replace(row, b"tableoff\xae\xaetsoffsets").replace(
        b"CREATE TABLE offsets", b"CREATE TABEL offsets"
    )
    assert damaged != data
    path.write_bytes(damaged)
    with pytest.raises(UnicodeDecodeError), closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    assert opened_is_new(path)
    assert len(aside(path)) == 1


def test_a_whole_database_under_suspicion_stays(path: Path) -> None:
    mark_damaged(path)
    assert opened_is_new(path)  # as it was: never replayed
    assert aside(path) == [] and not path.with_name("metrics.db.damaged").exists()


def test_a_locked_database_is_reported_with_its_holder(path: Path) -> None:
    words = [sys.executable, "-c", _HOLDING, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        assert holder(path) == process.pid
        connection = sqlite3.connect(path, timeout=0, isolation_level=None)
        with closing(connection), pytest.raises(sqlite3.OperationalError) as caught:
            connection.execute("BEGIN IMMEDIATE")
        error = storage_error(caught.value, path)
        process.communicate(b"")
    assert (error.code, error.retryable) == ("DATABASE_LOCKED", True)
    assert f"process {process.pid}" in error.message
