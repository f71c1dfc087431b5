"""Homes that another version wrote, damaged ones, and kills while they are migrated."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from support.attack.cases import attack_count, attack_random
from support.store.old_homes import place_old_home

from trainmaster.cli import run
from trainmaster.errors.errors import StorageError
from trainmaster.store.control import Control
from trainmaster.store.control.earlier_instances import EARLIER_TABLE
from trainmaster.store.control.schema import SCHEMA
from trainmaster.store.database import open_database
from trainmaster.store.migration import WRITTEN_BY, Schema, schema_digest, version_of

pytestmark = pytest.mark.attack

_OPEN = """
import sys
from pathlib import Path
from trainmaster.store.control import Control
print("ready", flush=True)
sys.stdin.readline()
Control(Path(sys.argv[1])).close()
print("migrated", flush=True)
"""
_REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    place_old_home("c44bf393", tmp_path / "old")
    return tmp_path / "old" / "control.db"


def _version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return version_of(connection)


def _opener(path: Path) -> subprocess.Popen[str]:
    """A process that opens a home once it gets a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", _OPEN, str(path)],
        env={**os.environ, "PYTHONPATH": f"{_REPOSITORY}/server:{_REPOSITORY}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def _begin(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_processes_that_open_an_old_home_at_once_all_continue_and_one_migrates_it(
    old: Path,
) -> None:
    openers = [_opener(old) for _ in range(4)]
    for opener in openers:
        _begin(opener)
    assert [opener.communicate(timeout=60)[0] for opener in openers] == ["migrated\n"] * 4
    assert [opener.returncode for opener in openers] == [0] * 4
    (backup,) = old.parent.glob("control.db.v4.*")
    assert (_version(old), _version(backup)) == (SCHEMA.version, 4)


def test_a_migration_that_is_killed_at_any_moment_is_repeated_from_the_beginning(
    old: Path, tmp_path: Path
) -> None:
    random = attack_random("killed migrations")
    with closing(sqlite3.connect(old)) as connection, connection:
        connection.executemany(  # so that copy and steps take some milliseconds
            "INSERT INTO runs (run_id, name, created_t, host, spec, config, plan, labels)"
            " VALUES (?, ?, 1.0, 'local', '', '{}', '{}', '{}')",
            [(f"gpt{number}-abc234", f"gpt{number}") for number in range(5_000)],
        )
    killed = 0
    for _ in range(attack_count(8)):
        home = tmp_path / "home"
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(old.parent, home)
        path = home / "control.db"
        process = _opener(path)
        _begin(process)
        try:
            output = process.communicate(timeout=random.uniform(0.0, 0.08))[0]
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            output = process.communicate(timeout=30)[0]
        killed += "migrated" not in output
        left = _version(path)
        assert left in (4, SCHEMA.version)
        assert left == 4 or list(home.glob("control.db.v4.*"))
        control = Control(path)
        assert len(control.instances.all()) == 4
        assert len(control.runs()) == 5_004
        control.close()
        assert _version(path) == SCHEMA.version
        backups = list(home.glob("control.db.v4.*"))
        assert backups and all(_version(backup) == 4 for backup in backups)
        assert not list(home.glob("*.part"))
    assert killed


@pytest.mark.parametrize("writer", [None, "9.9"])
def test_a_newer_home_is_refused_with_its_version_and_stays_as_it_is(
    tmp_path: Path, writer: str | None
) -> None:
    path = tmp_path / "control.db"
    Control(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA.version + 1}")
        connection.execute("DELETE FROM facts WHERE name = ?", (WRITTEN_BY,))
        if writer is not None:
            connection.execute("INSERT INTO facts VALUES (?, ?)", (WRITTEN_BY, writer))
    with pytest.raises(StorageError) as refused:
        Control(path)
    assert refused.value.code == "HOME_IS_NEWER"
    assert f"schema version {SCHEMA.version + 1}" in refused.value.message
    assert writer is None or f"Install Trainmaster {writer}" in refused.value.fix
    assert _version(path) == SCHEMA.version + 1
    assert list(tmp_path.glob("*.v*")) == []


def _other_table(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE others (name TEXT)")


def _missing_table(connection: sqlite3.Connection) -> None:
    connection.execute("DROP TABLE idempotency")


def _other_column(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE runs ADD COLUMN theirs TEXT")


def _missing_index(connection: sqlite3.Connection) -> None:
    connection.execute("DROP INDEX open_runs")


def _other_number(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA user_version = 2")


@pytest.mark.parametrize(
    "change", [_other_table, _missing_table, _other_column, _missing_index, _other_number]
)
def test_tables_that_no_version_wrote_are_refused_and_stay_as_they_are(
    old: Path, change: Callable[[sqlite3.Connection], None]
) -> None:
    with closing(sqlite3.connect(old)) as connection, connection:
        change(connection)
        before = schema_digest(connection), version_of(connection)
    with pytest.raises(StorageError) as refused:
        Control(old)
    assert refused.value.code == "HOME_OF_OTHER_VERSION"
    assert "restore control.db from a backup" in refused.value.fix
    with closing(sqlite3.connect(old)) as connection:
        assert (schema_digest(connection), version_of(connection)) == before
    assert list(old.parent.glob("*.v*")) == []


@pytest.mark.parametrize("digest", SCHEMA.variants)
def test_tables_that_bore_a_number_of_others_are_migrated(tmp_path: Path, digest: str) -> None:
    """The variants were made by taking back what the missing step does."""
    path = tmp_path / "control.db"
    version, _ = SCHEMA.variants[digest]
    open_database(path, Schema(SCHEMA.steps[:version]), synchronous="FULL").close()
    with closing(sqlite3.connect(path)) as connection, connection:
        if version == 2:
            connection.execute("DROP INDEX open_runs")
        else:
            connection.execute("DROP INDEX open_instances")
            connection.execute(f"ALTER TABLE instances RENAME TO {EARLIER_TABLE}")
            connection.execute(
                f"CREATE INDEX open_boxes ON {EARLIER_TABLE} (state) WHERE ended_t IS NULL"
            )
        if version == 4:
            connection.execute("ALTER TABLE instance_keys RENAME TO box_keys")
        assert schema_digest(connection) == digest
    Control(path).close()
    assert _version(path) == SCHEMA.version


def test_a_damaged_old_home_is_refused_as_damaged_and_no_copy_replaces_it(old: Path) -> None:
    random = attack_random("damaged homes")
    whole = old.read_bytes()
    codes = set()
    for _ in range(attack_count(30)):
        data = bytearray(whole)
        begin = random.randrange(0, len(data) - 64)
        data[begin : begin + 64] = random.randbytes(64)
        if random.random() < 0.3:
            del data[random.randrange(len(data)) :]
        old.write_bytes(data)
        for name in ("control.db-wal", "control.db-shm"):
            (old.parent / name).unlink(missing_ok=True)
        try:
            Control(old).close()
            codes.add("opened")
        except StorageError as error:
            codes.add(error.code)
    known = {"opened", "DATABASE_DAMAGED", "HOME_IS_NEWER", "HOME_OF_OTHER_VERSION"}
    assert codes <= known | {"ROOT_NOT_WRITABLE"}, codes
    assert codes & {"DATABASE_DAMAGED", "HOME_OF_OTHER_VERSION"}


@pytest.mark.parametrize("left", ["nothing", "an empty file", "a file without tables"])
def test_a_home_of_runs_without_its_records_is_refused_and_never_begun_again(
    old: Path, left: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMASTER_HOME", str(old.parent))
    for path in old.parent.glob("control.db*"):
        path.unlink()
    if left != "nothing":
        old.touch(mode=0o600)
    if left == "a file without tables":
        with closing(sqlite3.connect(old)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    for words in (["runs"], ["tick"], ["overview"]):
        assert run([*words, "--json"]) == 1
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["code"] == "DATABASE_DAMAGED"
        assert str(old.parent / "mirror") in error["message"]
        assert "hosts recover" in error["fix"]
