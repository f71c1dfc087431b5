from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest
from support.host.logical_clock import contents
from support.runs.planted_mirror import lose_metrics, plant_mirror
from support.runs.running_run import run_async, small_spec

from trainer_runtime.core.files.durable import try_lock
from trainmaster.cli import run as command
from trainmaster.errors.errors import StorageError
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.launch.launch import launch
from trainmaster.runs.metrics.query_metrics import query_metrics
from trainmaster.runs.status.status import get_status
from trainmaster.runs.upkeep.maintain import until_closed
from trainmaster.sync.rebuild import rebuild, rebuild_within
from trainmaster.sync.replay import replay
from trainmaster.sync.workspace import Workspace, open_workspace

FAULTS = '{TRAINMASTER_FAULTS: "kill@33 nan@47", TRAINMASTER_STEP_S: "0"}'


def spec(folder: Path, **changes: str) -> str:
    return small_spec(folder, host="debug", env=FAULTS, **changes)


async def finished_run(workspace: Workspace, folder: Path) -> str:
    run = (await launch(workspace, spec(folder))).run_id
    answer = await wait_for_event(workspace, run, until=["completed"], timeout_s=60)
    assert answer.event == "completed"
    await until_closed(workspace, run)
    return run


@pytest.mark.slow
def test_replay_of_the_mirror_gives_the_same_database(workspace: Workspace, tmp_path: Path) -> None:
    async def work() -> None:
        runs = [await finished_run(workspace, tmp_path) for _ in range(2)]
        before = contents(workspace.metrics)
        attempts = [(await get_status(workspace, run, detail=True)).attempts for run in runs]
        answer = await replay(workspace)
        assert contents(workspace.metrics) == before
        assert (answer.runs, answer.points) == (2, len(before["points"]))
        assert attempts == [
            (await get_status(workspace, run, detail=True)).attempts for run in runs
        ]
        assert len(attempts[0] or []) == 3

    run_async(work)


def test_a_database_that_was_lost_comes_back_by_itself(
    workspace: Workspace, home: Path, tmp_path: Path
) -> None:
    async def work() -> None:
        run = await finished_run(workspace, tmp_path)
        before = contents(workspace.metrics)
        workspace.metrics.close()
        for path in home.glob("metrics.db*"):
            path.unlink()
        with open_workspace({"TRAINMASTER_HOME": str(home)}) as opened:
            assert opened.metrics.replay_due
            assert not rebuild_within(opened, 0.0, piece_bytes=1024)
            assert opened.metrics.replay_due
            rebuild(opened)
            assert contents(opened.metrics) == before
            assert not opened.metrics.replay_due
            metrics = await query_metrics(opened, [run], keys=["loss"], everything=True)
            assert metrics.runs[run]["loss"].steps == list(range(1, 61))

    run_async(work)


def test_what_an_older_version_wrote_is_thrown_away_and_rebuilt_by_the_next_command(
    workspace: Workspace,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def work() -> str:
        return await finished_run(workspace, tmp_path)

    run = run_async(work)
    before = contents(workspace.metrics)
    with workspace.metrics.writing():
        workspace.metrics.connection.execute("PRAGMA user_version = 1")
        workspace.metrics.connection.execute("DROP TABLE blocks")
        workspace.metrics.connection.execute("CREATE TABLE once (a TEXT)")
    workspace.metrics.close()
    monkeypatch.setenv("TRAINMASTER_HOME", str(home))
    assert command(["metrics", run, "--key", "loss", "--all", "--json"]) == 0
    series = json.loads(capsys.readouterr().out)["runs"][run]["loss"]
    assert series["steps"] == list(range(1, 61))
    with open_workspace({"TRAINMASTER_HOME": str(home)}) as opened:
        assert contents(opened.metrics) == before


def test_a_program_of_an_older_version_writes_nothing_into_a_newer_ones_database(
    workspace: Workspace, home: Path
) -> None:
    workspace.metrics.connection.execute("SELECT count(*) FROM series").fetchone()
    with sqlite3.connect(home / "metrics.db") as newer:
        newer.execute("PRAGMA user_version = 99")
    with pytest.raises(StorageError, match="HOME_IS_NEWER"), workspace.metrics.writing():
        workspace.metrics.clear()


def test_replay_of_an_empty_home_finds_nothing(workspace: Workspace) -> None:
    answer = run_async(lambda: replay(workspace))
    assert (answer.runs, answer.points) == (0, 0)


def test_commands_show_people_that_an_answer_is_incomplete(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    plant_mirror(workspace, "long", 50)
    lose_metrics(workspace)
    lock = try_lock(workspace.home.rebuild_lock)
    assert lock is not None
    assert command(["runs"]) == 0
    assert "Incomplete: The metrics database is being rebuilt" in capsys.readouterr().out
    os.close(lock)
    assert command(["runs"]) == 0
    assert "Incomplete" not in capsys.readouterr().out
