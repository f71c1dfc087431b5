"""A database that is rebuilt piece by piece, while others read and processes are killed."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.host.logical_clock import contents
from support.runs.planted_journal import EVENTS
from support.runs.planted_mirror import lose_metrics, plant_mirror
from support.runs.running_run import run_async

from trainer_runtime.core.files.durable import try_lock
from trainmaster.errors.errors import StateError
from trainmaster.runs.lists.list_runs import list_runs
from trainmaster.runs.metrics.query_metrics import query_metrics
from trainmaster.runs.overview.overview import overview_on_record
from trainmaster.runs.status.status import status_of
from trainmaster.store.metrics_store import MetricsStore
from trainmaster.sync.follow import catch_up
from trainmaster.sync.ingest import ingest_placement
from trainmaster.sync.rebuild import PIECE_BYTES, await_rebuilt, rebuild, rebuild_within
from trainmaster.sync.run_view import end_of, load_view
from trainmaster.sync.workspace import Workspace, open_workspace

REPOSITORY = Path(__file__).parents[2]
ROUNDS = int(os.environ.get("TRAINMASTER_FAULT_ROUNDS", "3"))
SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))
_PIECE = 4 << 10
_REBUILDING = """
import os, sys
from trainmaster.sync.rebuild import rebuild
from trainmaster.sync.workspace import open_workspace
with open_workspace(os.environ) as workspace:
    workspace.metrics.replay_due
    print("ready", flush=True)
    rebuild(workspace, int(sys.argv[1]))
"""


@pytest.fixture
def emptied(workspace: Workspace, home: Path) -> Iterator[Workspace]:
    """Of two runs, an ended one and an open one, whose metrics database was lost."""
    for name in ("closed", "open"):
        plant_mirror(workspace, name, 2000)
    workspace.control.close_run("closed-abcdef", 1)
    lose_metrics(workspace)
    with open_workspace({"TRAINMASTER_HOME": str(home)}) as opened:
        yield opened


def test_kills_at_any_moment_leave_the_same_database(
    emptied: Workspace, home: Path, tmp_path: Path
) -> None:
    print(f"TRAINMASTER_FAULT_SEED={SEED}")
    made, mirror = random.Random(SEED), emptied.mirror
    whole = MetricsStore(tmp_path / "whole.db")
    for run_id, placement in mirror.placements():
        ingest_placement(whole, mirror.of(run_id, placement), run_id, placement)
    command = [sys.executable, "-c", _REBUILDING, str(_PIECE)]
    environment = {**os.environ, "TRAINMASTER_HOME": str(home)}
    for _ in range(ROUNDS):
        if not emptied.metrics.replay_due:  # the one before was faster: once more
            with emptied.metrics.writing():
                emptied.metrics.clear()
                emptied.metrics.expect_replay()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, cwd=REPOSITORY, env=environment
        ) as one:
            assert one.stdout is not None and one.stdout.readline() == b"ready\n"
            try:
                one.wait(made.uniform(0.0, 0.03))
            except subprocess.TimeoutExpired:
                one.kill()
        rebuild_within(emptied, 0.0, _PIECE)  # beside what the next process does
    rebuild(emptied, _PIECE)
    assert contents(emptied.metrics) == contents(whole)
    whole.close()


@pytest.mark.parametrize("cleared", [0, 1])
def test_a_replay_that_was_killed_while_it_cleared_is_continued(
    emptied: Workspace, cleared: int
) -> None:
    rebuild(emptied)
    before, metrics = contents(emptied.metrics), emptied.metrics
    with metrics.writing():
        metrics.expect_replay()
        metrics.clear_records("open-abcdef")
    for _ in range(cleared):
        with metrics.writing():
            metrics.clear_series("open-abcdef")
    rebuild(emptied, _PIECE)
    assert contents(metrics) == before


def test_answers_say_that_they_are_incomplete_until_the_end(emptied: Workspace) -> None:
    emptied.control.close_run("open-abcdef", 1)  # so that no host is read
    assert rebuild_within(emptied, 0.0, _PIECE) is False

    async def notes() -> list[str | None]:
        of_runs = await list_runs(emptied)
        metrics = await query_metrics(emptied, [])
        status = status_of(load_view(emptied, "open"))
        return [status.incomplete, of_runs.incomplete, metrics.incomplete]

    answers = run_async(notes)
    assert all(one is not None and "being rebuilt (" in one for one in answers), answers
    assert "being rebuilt" in overview_on_record(emptied).attention[0]
    assert end_of(load_view(emptied, "closed")) is None  # no list keeps it as its end
    rebuild(emptied)
    assert run_async(notes) == [None, None, None]


def test_open_runs_are_rebuilt_first(emptied: Workspace) -> None:
    size = emptied.mirror.of("open-abcdef", 1).size(EVENTS)
    while emptied.metrics.offset("open-abcdef", 1, EVENTS) < size:
        assert emptied.metrics.offset("closed-abcdef", 1, EVENTS) == 0
        assert rebuild_within(emptied, 0.0, _PIECE) is False


def test_what_acts_waits_for_the_end_and_may_be_repeated(emptied: Workspace) -> None:
    lock = try_lock(emptied.home.rebuild_lock)
    assert lock is not None
    with pytest.raises(StateError, match="METRICS_BEING_REBUILT") as refused:
        run_async(lambda: await_rebuilt(emptied, 0.05))
    assert refused.value.retryable
    os.close(lock)
    run_async(lambda: await_rebuilt(emptied, 60.0))
    assert not emptied.metrics.replay_due


def test_a_pass_leaves_a_long_rebuild_to_a_process_of_its_own(
    workspace: Workspace, home: Path
) -> None:
    run_id = plant_mirror(workspace, "long", PIECE_BYTES // 80)
    size = workspace.mirror.of(run_id, 1).size(EVENTS)
    assert size > PIECE_BYTES
    with workspace.metrics.writing():
        workspace.metrics.expect_replay()
    lock = try_lock(workspace.home.rebuild_lock)
    assert lock is not None
    run_async(lambda: catch_up(workspace, "gpu1"))
    assert workspace.metrics.offset(run_id, 1, EVENTS) == 0
    os.close(lock)

    async def until_rebuilt() -> None:
        async with asyncio.timeout(60.0):
            await catch_up(workspace, "gpu1")  # it starts the process
            while workspace.metrics.replay_due:
                await asyncio.sleep(0.05)

    run_async(until_rebuilt)
    assert workspace.metrics.offset(run_id, 1, EVENTS) == size
    assert load_view(workspace, run_id).step == PIECE_BYTES // 80
