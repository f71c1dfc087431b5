"""Runs are listed a page at a time, newest first, whatever else is on record."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.core.journal_records import attempt_ended, attempt_starting, state
from support.runs.running_run import run_async
from support.sync.followed_run import FakeRun, FollowedWorkspace

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.answers.run_list import RunsAnswer
from trainmaster.backends.hosts import LocalHost
from trainmaster.errors.errors import UsageError
from trainmaster.home.paths import Home
from trainmaster.runs.lists.list_runs import list_runs

ENDS = ("completed", "failed", "completed", "stopped", "failed")


@pytest.fixture
def home_of_ended(home: Path, tmp_path: Path) -> FollowedWorkspace:
    """Five runs that have ended, as `ENDS` says, and one that trains."""
    home.mkdir()
    host = LocalHost("box", tmp_path / "box")
    workspace = FollowedWorkspace(Home(home), host)
    for number, end in enumerate((*ENDS, None)):
        run = FakeRun(workspace, tmp_path / "box" / "runs" / f"r{number}-aaaaaa")
        journal = [attempt_starting(1), ("attempt_running", {"attempt": 1}), state("running")]
        if end is not None:
            journal += [attempt_ended(1, end), state(end, generation=1), ("closed", {})]
        run.emit("supervisor.jsonl", journal, first_t=1e9)
    run_async(lambda: list_runs(workspace))
    return workspace


def listed(workspace: FollowedWorkspace, **asked: object) -> list[str]:
    return [row.run_id[:2] for row in answer_of(workspace, **asked).runs]


def answer_of(workspace: FollowedWorkspace, **asked: object) -> RunsAnswer:
    return run_async(lambda: list_runs(workspace, **asked))  # type: ignore[arg-type]


def test_pages_follow_each_other_and_the_last_says_so(home_of_ended: FollowedWorkspace) -> None:
    first = answer_of(home_of_ended, limit=4)
    assert [row.run_id[:2] for row in first.runs] == ["r0", "r1", "r2", "r3"]
    assert first.more
    last = answer_of(home_of_ended, limit=4, cursor=first.cursor)
    assert ([row.run_id[:2] for row in last.runs], last.more) == (["r4", "r5"], None)
    with pytest.raises(UsageError, match="CURSOR_INVALID"):
        answer_of(home_of_ended, cursor="r0")


def test_only_runs_in_the_state_are_listed(home_of_ended: FollowedWorkspace) -> None:
    assert all(home_of_ended.control.run(f"r{number}").closed for number in range(len(ENDS)))
    assert listed(home_of_ended, state="failed") == ["r1", "r4"]
    assert listed(home_of_ended, state="failed", limit=1) == ["r1"]
    assert listed(home_of_ended, state="stopped") == ["r3"]
    assert listed(home_of_ended, state="lost") == ["r5"]


def test_an_ended_run_is_listed_without_its_records_until_it_is_requested_again(
    home_of_ended: FollowedWorkspace,
) -> None:
    before = answer_of(home_of_ended)
    with home_of_ended.metrics.writing():
        home_of_ended.metrics.clear()
    assert listed(home_of_ended, state="failed") == ["r1", "r4"]
    assert answer_of(home_of_ended).runs[:5] == before.runs[:5]
    asked = Desired(DesiredState.RUNNING, 2)
    home_of_ended.control.request("r1-aaaaaa", asked, 2e9)
    assert listed(home_of_ended, state="failed") == ["r4"]
    home_of_ended.control.list.forget_ends(None)
    assert listed(home_of_ended, state="failed") == []


def test_a_damaged_fold_takes_no_other_run_with_it(home_of_ended: FollowedWorkspace) -> None:
    home_of_ended.control.list.forget_ends(None)
    with home_of_ended.metrics.writing():
        home_of_ended.metrics.connection.execute(
            "UPDATE folds SET body = 'torn' WHERE run_id = 'r1-aaaaaa'"
        )
    answer = answer_of(home_of_ended, state="failed")
    assert [row.run_id[:2] for row in answer.runs] == ["r4"]
