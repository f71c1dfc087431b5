"""A home that an earlier version wrote is migrated, and used as if this one had written it."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.runs.running_run import CommandLine, processes_of, wait_until
from support.store.old_homes import FOLDER, place_old_home, start_supervisor

from trainmaster.store.control import Control
from trainmaster.store.control.earlier_instances import EARLIER_TABLE
from trainmaster.store.control.instances import RentState
from trainmaster.store.control.schema import SCHEMA
from trainmaster.store.database import open_database
from trainmaster.store.migration import WRITTEN_BY, Schema, schema_digest, version_of
from trainmaster.store.read_only import open_read_only

C44 = "c44bf393"
# Of each version of the schema, from 1 on; see `_statements`.
STATEMENTS = [
    "30040d9ec34a4f4e",
    "34bf2fe79a51b66a",
    "d1b1001e7cdd2226",
    "b5b9f57bae2060b6",
    "9b0ac6fa6642784c",
    "7a8530547dbcbeb7",
    "11b1bff68e506617",
]


@pytest.fixture
def old_home(home: Path) -> Path:
    place_old_home(C44, home)
    return home


def test_runs_of_an_old_home_are_listed_read_and_diagnosed(
    old_home: Path, command: CommandLine
) -> None:
    runs = command("runs")["runs"]
    assert {(run["name"], run["state"], run["step"]) for run in runs} == {
        ("done", "completed", 60),
        ("broken", "failed", 29),
        ("held", "stopped", 56),
        ("trained", "completed", 60),
    }
    assert command("status", "trained")["state"] == "completed"
    assert [line for line in command("logs", "trained")["lines"] if "step 60" in line]
    summary = command("metrics", "trained")
    assert "val_loss" in str(summary)
    assert "planted fault unusable@30" in str(command("diagnose", "broken"))
    assert [row["step"] for row in command("checkpoints", "trained")["checkpoints"]] == [20, 40, 60]
    attention = command("overview")["attention"]
    rented = [line for line in attention if "costs $0.25/h, no run on it" in line]
    assert attention[: len(rented)] == rented  # what is paid for comes first
    assert attention[len(rented)].startswith("broken failed")


def test_a_stopped_run_of_an_old_home_resumes_at_its_step_and_is_stopped_again(
    old_home: Path, command: CommandLine
) -> None:
    command("resume", "held")
    answer = command("wait", "held", "--until", "checkpoint", "--timeout", "60")
    assert answer["state"] == "running"
    command("stop", "held")
    command("wait", "held", "--until", "end", "--timeout", "60")
    answer = command("status", "held")
    assert answer["state"] == "stopped" and answer["step"] >= 60
    assert answer["attempt"] == 3


@pytest.mark.long
@pytest.mark.slow
def test_a_live_run_of_an_old_home_is_followed_stopped_and_resumed_by_its_own_old_runtime(
    home: Path, command: CommandLine
) -> None:
    place_old_home(f"{C44}-live", home)
    (folder,) = (home / "local" / "runs").iterdir()
    run, run_id = command.folder(folder.name), folder.name
    supervisor = start_supervisor(folder)
    wait_until(lambda: list(folder.glob("checkpoints/step-*")), "a checkpoint")
    assert processes_of(run)["supervisor"] == supervisor
    # The home is migrated by this command, beside the run.
    assert [row["state"] for row in command("runs")["runs"]] == ["running"]
    assert [path.name for path in home.glob("control.db.v4.*")]
    step = command("status", run_id)["step"]
    assert wait_until(lambda: command("status", run_id)["step"] > step, "newer steps")
    assert any("step" in line for line in command("logs", run_id)["lines"])
    assert "loss" in str(command("metrics", run_id))
    command("tick")
    assert processes_of(run)["supervisor"] == supervisor  # it is nobody's to start again
    command("stop", run_id)
    command("wait", run_id, "--until", "end", "--timeout", "60")
    stopped = command("status", run_id)
    assert (stopped["state"], stopped["attempt"]) == ("stopped", 1)
    command("resume", run_id)
    answer = command("wait", run_id, "--until", "checkpoint", "--timeout", "120")
    assert (answer["state"], answer["step"] > stopped["step"]) == ("running", True)
    command("stop", run_id)
    command("wait", run_id, "--until", "end", "--timeout", "60")
    again = command("status", run_id)
    assert (again["state"], again["attempt"]) == ("stopped", 2)
    assert "live" in str(command("overview"))


def test_rented_boxes_of_an_old_home_are_instances_with_all_that_was_recorded(
    old_home: Path,
) -> None:
    control = Control(old_home / "control.db")
    by_host = {one.host: one for one in control.instances.all()}
    ready = by_host["gpu2"]
    assert (ready.state, ready.provider_id) == (RentState.READY, "pod1")
    assert ready.requested is not None and ready.requested.disk_gib == 50
    assert (ready.lease_timer, ready.can_self_terminate) == ("ends itself", True)
    assert ready.created_t is not None and ready.first_listed_t == ready.created_t + 1
    assert ready.last_error is not None and ready.last_error.code == "CLOUD_BUSY"
    assert ready.release is None and ready.release_refusal is not None
    leaving = by_host["gpu3"]
    assert leaving.state is RentState.RELEASING and leaving.release is not None
    assert (leaving.release.force, leaving.release.reason) == (True, "released")
    assert leaving.mirrored_runs == ("done-000000",)
    failed, lost = by_host["gpu4"], by_host["gpu5"]
    assert failed.end_error is not None and failed.end_reason == "NO_CAPACITY"
    assert lost.loss is not None and lost.end_reason == "lease_over"
    assert control.instances.home_id() in ready.tag
    control.close()


def test_the_rest_of_an_old_home_is_there_and_the_home_was_copied_before(
    old_home: Path, command: CommandLine
) -> None:
    with closing(sqlite3.connect(old_home / "control.db")) as before:
        recorded = before.execute("SELECT count(*) FROM approvals").fetchone()
    assert [row["name"] for row in command("alerts", "list")["alerts"]] == ["val_loss-3-5-for-3"]
    assert "gpu1" in str(command("hosts"))
    control = Control(old_home / "control.db")
    session = control.kaggle.newest(control.run("done").run_id)
    assert session is not None and (session.ref, session.outcome) == ("me/done", "complete")
    control.close()
    (backup,) = old_home.glob("control.db.v4.*")
    with closing(sqlite3.connect(backup)) as kept:
        assert version_of(kept) == 4
        assert kept.execute("SELECT count(*) FROM approvals").fetchone() == recorded
        assert kept.execute(f"SELECT count(*) FROM {EARLIER_TABLE}").fetchone() == (4,)
        assert kept.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert backup.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("version", range(1, SCHEMA.version))
def test_every_released_schema_is_recognized_and_migrated(tmp_path: Path, version: int) -> None:
    path = tmp_path / "control.db"
    open_database(path, Schema(SCHEMA.steps[:version]), synchronous="FULL").close()
    with closing(sqlite3.connect(path)) as connection:
        assert schema_digest(connection) == SCHEMA.released[version - 1]
        connection.execute(
            "INSERT INTO runs (run_id, name, created_t, host, spec, config, plan, labels)"
            " VALUES ('gpt-abc234', 'gpt', 1.0, 'local', '', '{}', '{}', '{}')"
        )
        connection.commit()
    control = Control(path)
    assert control.run("gpt").run_id == "gpt-abc234"
    assert control.facts.get(WRITTEN_BY)
    control.close()
    assert len(list(tmp_path.glob(f"control.db.v{version}.*"))) == 1


def test_the_tables_change_only_with_a_step_and_a_digest_of_their_own(tmp_path: Path) -> None:
    """Fails where a step was edited: add a step and its digest instead (docs/design/homes.md)."""
    assert len(SCHEMA.released) == SCHEMA.version
    path = tmp_path / "control.db"
    for version in range(1, SCHEMA.version + 1):
        path.unlink(missing_ok=True)
        open_database(path, Schema(SCHEMA.steps[:version]), synchronous="FULL").close()
        with closing(sqlite3.connect(path)) as connection:
            assert schema_digest(connection) == SCHEMA.released[version - 1], version


def _statements(connection: sqlite3.Connection) -> str:
    """All of a database's SQL: constraints and triggers too, which the digest of tables omits."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY 1, 2")
    words = [[" ".join(str(one).split()) for one in row] for row in rows]
    return hashlib.sha256(repr(words).encode()).hexdigest()[:16]


def test_no_constraint_or_trigger_of_a_released_version_changes(tmp_path: Path) -> None:
    """Fails where a step was edited: add a step instead, and its line here."""
    written = []
    for version in range(1, SCHEMA.version + 1):
        path = tmp_path / f"{version}.db"
        open_database(path, Schema(SCHEMA.steps[:version]), synchronous="FULL").close()
        with closing(sqlite3.connect(path)) as connection:
            written.append(_statements(connection))
    assert written == STATEMENTS


def test_kept_homes_are_named_by_commits_and_hold_no_path_of_the_machine_that_made_them() -> None:
    kept = [path.name for path in FOLDER.glob("*.tar.xz")]
    assert {f"{C44}.tar.xz", f"{C44}-live.tar.xz"} <= {*kept}
    assert all(re.fullmatch(r"[0-9a-f]{8}(-live)?\.tar\.xz", name) for name in kept)


@pytest.mark.parametrize("is_old", [True, False])
def test_a_home_that_is_opened_to_be_read_takes_no_change(old_home: Path, is_old: bool) -> None:
    """The tables of an older version are migrated in memory, where a change would be lost."""
    path = old_home / "control.db"
    if not is_old:
        open_database(path, SCHEMA, synchronous="FULL").close()
    before = {file.name: file.read_bytes() for file in old_home.glob("control.db*")}
    with closing(open_read_only(path, SCHEMA)) as connection:
        assert version_of(connection) == SCHEMA.version
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (4,)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("DELETE FROM runs")
    assert {file.name: file.read_bytes() for file in old_home.glob("control.db*")} == before
