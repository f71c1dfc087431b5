"""Runs on a host that the home has lost: it was restored from a backup, or is another one."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.backends.ssh_hosts import Sshd
from support.runs.light_run import light_spec, standing
from support.runs.running_run import CommandLine, wait_until
from support.runs.slurm_run import cluster, knowing_the_cluster, login  # noqa: F401 - fixtures

from trainmaster.sync.workspace import open_workspace

pytestmark = pytest.mark.slow


def _write(path: Path, spec: str) -> str:
    path.write_text(spec)
    return str(path)


def _restore(home: Path, backup: Path | None) -> None:
    """A home of that control.db, and without the mirror; None: a new one over the same folder."""
    if backup is not None:
        shutil.copy(backup, home / "restored.db")  # another file than the one that is there
    for path in home.glob("control.db*"):
        path.unlink()
    for path in home.glob("metrics.db*"):
        path.unlink()
    shutil.rmtree(home / "mirror", ignore_errors=True)
    if backup is not None:
        (home / "restored.db").rename(home / "control.db")


def _overwrite(home: Path, backup: Path) -> None:
    """The contents of control.db alone."""
    for path in home.glob("control.db-*"):
        path.unlink()
    (home / "control.db").write_bytes(backup.read_bytes())


def _is_closed(home: Path, run_id: str) -> bool:
    with open_workspace({"TRAINMASTER_HOME": str(home)}) as workspace:
        return workspace.control.run(run_id).closed


@pytest.fixture
def launched(command: CommandLine, home: Path, tmp_path: Path) -> tuple[str, Path]:
    """A run that stands at a step, and a control.db from before its launch."""
    return _launched(command, tmp_path)


def _launched(command: CommandLine, tmp_path: Path) -> tuple[str, Path]:
    command("runs")
    backup = tmp_path / "control.db"
    with (
        closing(sqlite3.connect(command.home / "control.db")) as source,
        closing(sqlite3.connect(backup)) as copy,
    ):
        source.backup(copy)
    spec = _write(tmp_path / "small.yaml", light_spec(tmp_path, *standing(20)))
    run_id = str(command("launch", spec, "--host", command.host)["run_id"])
    command("wait", run_id, "--until", "step:20", "--timeout", "120")
    return run_id, backup


@pytest.mark.attack
def test_a_tick_of_a_restored_home_finds_the_live_run_which_is_then_stopped_and_resumed(
    command: CommandLine, home: Path, launched: tuple[str, Path]
) -> None:
    _overwrite(home, launched[1])
    _recovers_by_a_tick(command, launched[0])


@pytest.mark.long  # as the one above, over SSH
def test_a_tick_of_a_restored_home_finds_the_live_run_on_a_host_over_ssh(
    remote: CommandLine, tmp_path: Path
) -> None:
    run_id, backup = _launched(remote, tmp_path)
    remote("tick")
    _restore(remote.home, backup)
    _recovers_by_a_tick(remote, run_id)


@pytest.mark.engine
def test_a_tick_of_a_restored_home_finds_the_live_run_in_a_job_of_a_cluster(
    home: Path,
    login: Sshd,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    command = knowing_the_cluster(home, login)
    run_id, backup = _launched(command, tmp_path)
    command("tick")
    _restore(command.home, backup)
    _recovers_by_a_tick(command, run_id)


def _recovers_by_a_tick(command: CommandLine, run_id: str) -> None:
    listed = command("runs")
    assert listed["runs"] == []
    assert "tick` has searched" in listed["incomplete"]
    assert "tick` searches" in command("overview")["next_step"]
    (row,) = command("tick")["runs"]
    assert (row["run_id"], row["did"]) == (run_id, ["put on record again"])
    assert "incomplete" not in command("runs")
    assert "searches" not in command("overview")["next_step"]
    status = command("status", run_id)
    assert (status["state"], status["step"]) == ("running", 20)
    command("stop", run_id)
    assert command("wait", run_id, "--until", "end", "--timeout", "60")["state"] == "stopped"
    command("resume", run_id)
    command("wait", run_id, "--until", "end", "--timeout", "120")
    status = command("status", run_id)
    assert (status["state"], status["attempt"]) == ("completed", 2)
    assert [row for row in command("tick")["runs"] if "record" in str(row)] == []


@pytest.mark.long
def test_a_request_that_a_restored_home_has_lost_is_recorded_again(
    command: CommandLine, home: Path, launched: tuple[str, Path], tmp_path: Path
) -> None:
    run_id, _ = launched
    command("stop", run_id)
    command("wait", run_id, "--until", "end", "--timeout", "60")
    wait_until(lambda: command("tick") and _is_closed(home, run_id), "the run to be closed")
    backup = tmp_path / "later.db"
    shutil.copy(home / "control.db", backup)
    assert not (home / "control.db-wal").exists() or not (home / "control.db-wal").stat().st_size
    command("resume", run_id)
    command("wait", run_id, "--until", "end", "--timeout", "120")
    _restore(home, backup)
    assert command("status", run_id)["state"] == "stopped"
    (row,) = command("hosts", "recover", "local")["runs"]
    assert (row["run_id"], row["state"]) == (run_id, "recovered")
    assert command("status", run_id)["state"] == "completed"


@pytest.mark.long  # as the records of another home's below
def test_runs_of_another_home_are_listed_and_taken_only_by_name(
    command: CommandLine, home: Path, launched: tuple[str, Path]
) -> None:
    run_id, _ = launched
    _restore(home, None)
    assert command("tick")["runs"] == []
    (row,) = command("hosts", "recover", "local")["runs"]
    assert (row["run_id"], row["state"], row["supervised"]) == (run_id, "left", True)
    assert command("runs")["runs"] == []
    warned = {row["name"]: row for row in command("hosts", "check", "local")["checks"]}
    assert warned["runs"]["state"] == "warn" and "1 not on record" in warned["runs"]["found"]
    (row,) = command("hosts", "recover", "local", run_id)["runs"]
    assert row["state"] == "recovered"
    assert command("status", run_id)["step"] == 20
    command("stop", run_id)
    assert command("wait", run_id, "--until", "end", "--timeout", "60")["state"] == "stopped"


@pytest.mark.parametrize(("place", "why"), [("debug", "in the home"), ("kaggle", "a kernel")])
def test_where_no_run_can_be_found_that_is_said_with_the_reason(
    command: CommandLine, place: str, why: str
) -> None:
    error = command("hosts", "recover", place, code=1)["error"]
    assert error["code"] == "UNSUPPORTED"
    assert why in error["message"] and "newer backup" in error["fix"]


def _other_text(sealed: dict[str, Any]) -> None:
    sealed["record"] = sealed["record"].replace('"name": "small"', '"name": "other"')


def _other_host(sealed: dict[str, Any]) -> None:
    sealed["record"] = sealed["record"].replace('"host": "local"', '"host": "gpu1"')


def _no_seal(sealed: dict[str, Any]) -> None:
    del sealed["seal"]


def _later_version(sealed: dict[str, Any]) -> None:
    sealed["v"] = 2


def _a_list(sealed: dict[str, Any]) -> None:
    sealed["record"] = []


@pytest.mark.attack
def test_a_record_that_a_host_changed_or_that_is_of_another_run_is_not_this_homes(
    command: CommandLine, home: Path, launched: tuple[str, Path]
) -> None:
    run_id, backup = launched
    path = home / "local" / "runs" / run_id / "record.json"
    whole = path.read_text()
    changes: list[Callable[[dict[str, Any]], None]] = [
        _other_text,
        _other_host,
        _no_seal,
        _later_version,
        _a_list,
    ]
    for change in changes:
        sealed = json.loads(whole)
        change(sealed)
        path.write_text(json.dumps(sealed))
        _restore(home, backup)
        (row,) = command("hosts", "recover", "local")["runs"]
        assert row["state"] == "left", change
    other = home / "local" / "runs" / f"{run_id[:-6]}aaaaaa"
    shutil.copytree(
        path.parent, other, ignore=lambda _, names: set(names) - {"desired.json", "config.json"}
    )
    (other / "record.json").write_text(whole)
    path.write_text(whole)
    _restore(home, backup)
    rows = {row["run_id"]: row["state"] for row in command("hosts", "recover", "local")["runs"]}
    assert rows == {run_id: "recovered", other.name: "left"}
    command("stop", run_id)
    command("wait", run_id, "--until", "end", "--timeout", "60")


@pytest.mark.attack
def test_folders_that_are_no_runs_are_passed_over(
    command: CommandLine, home: Path, tmp_path: Path
) -> None:
    runs = home / "local" / "runs"
    for name, desired, config in (
        ("../up-abc234", "{}", "{}"),
        ("gpt-abc234", '{"generation": "x"}', "{}"),
        ("gpt-abc235", '{"generation": 1}', "[]"),
        ("gpt-abc236", '{"generation": 1, "state": "running"}', '{"framework": 7}'),
        ("with space", '{"generation": 1, "state": "running"}', "{}"),
        ("gpt-abc237", "[" * 100_000, "{}"),
    ):
        folder = (runs / name).resolve() if ".." not in name else runs / "up"
        folder.mkdir(parents=True)
        (folder / "desired.json").write_text(desired)
        (folder / "config.json").write_text(config)
    (runs / "link-abc234").symlink_to(tmp_path)
    (runs / "fifo-abc234").mkdir()
    assert command("hosts", "recover", "local")["runs"] == []
    with open_workspace({"TRAINMASTER_HOME": str(home)}) as workspace:
        assert workspace.control.runs() == []
