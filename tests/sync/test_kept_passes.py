"""Passes that a long-lived process keeps never miss what others have done meanwhile."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.backends.unreliable_transport import PartingHost
from support.core.journal_records import FIRST_T, metric, started
from support.runs.running_run import run_async
from support.sync.follow_until import refresh, until
from support.sync.followed_run import FakeRun, FollowedWorkspace, end_run, heartbeat

from trainmaster.backends.follower import Followed
from trainmaster.backends.polled import PolledFollower
from trainmaster.home.paths import Home
from trainmaster.store.mirror_writer import MirrorWriter
from trainmaster.sync.replay import replay

EVENTS, LOG = "attempts/1/events.jsonl", "attempts/1/train.log"
SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))


@pytest.fixture(params=["multiplexed", "polled"])
def workspaces(home: Path, request: pytest.FixtureRequest) -> Iterator[list[FollowedWorkspace]]:
    """As two processes have them: each with connections, a follower and passes of its own."""
    multiplexed = request.param == "multiplexed"
    with ExitStack() as stack:
        opened = []
        for _ in range(2):
            host = PartingHost(home / "box")
            workspace = FollowedWorkspace(Home(home), host, multiplexed=multiplexed)
            stack.callback(workspace.close)
            opened.append(workspace)
        yield opened


@pytest.fixture
def run(workspaces: list[FollowedWorkspace], home: Path) -> FakeRun:
    made = FakeRun(workspaces[0], home / "box" / "runs" / "small-abc234")
    heartbeat(made, t=FIRST_T)
    made.emit(EVENTS, [started()], first_t=FIRST_T)
    return made


only_polled = pytest.mark.parametrize("workspaces", ["polled"], indirect=True)


def holds_everything(run: FakeRun, steps: list[int]) -> bool:
    same = all(run.mirrored(name) == run.path(name).read_bytes() for name in (EVENTS, LOG))
    return same and run.steps() == steps


def test_processes_that_take_turns_copy_each_byte_and_each_step_once(
    workspaces: list[FollowedWorkspace], run: FakeRun
) -> None:
    chosen = random.Random(SEED)
    for step in range(1, 9):
        run.emit(EVENTS, [metric(step)], first_t=FIRST_T + step)
        run.write(LOG, b"step %d\n" % step)
        refresh(chosen.choice(workspaces))
        assert holds_everything(run, [*range(1, step + 1)]), f"seed {SEED}, step {step}"


def test_kept_passes_copy_a_run_that_begins_and_close_one_that_ends(
    workspaces: list[FollowedWorkspace], run: FakeRun, home: Path
) -> None:
    ours, others = workspaces
    refresh(ours)
    other = FakeRun(others, home / "box" / "runs" / "other-abc234")
    other.emit(EVENTS, [started(), metric(1)], first_t=FIRST_T)
    end_run(run)
    for _ in range(3):
        refresh(ours)
    assert other.steps() == [1]
    assert ours.control.run(run.run_id).closed


def test_kept_passes_ingest_again_what_another_process_cleared(
    workspaces: list[FollowedWorkspace], run: FakeRun
) -> None:
    ours, others = workspaces
    run.write(LOG, b"")
    run.emit(EVENTS, [metric(1)], first_t=FIRST_T + 1)
    refresh(ours)
    run_async(lambda: replay(others))
    run.emit(EVENTS, [metric(2)], first_t=FIRST_T + 2)
    refresh(ours)
    assert run.steps() == [1, 2]


@only_polled
def test_a_truncated_log_is_put_aside_between_two_calls(
    workspaces: list[FollowedWorkspace], run: FakeRun
) -> None:
    ours, _ = workspaces
    run.write(LOG, b"the first\n")
    refresh(ours)
    run.path(LOG).write_bytes(b"new\n")
    refresh(ours)
    assert (run.mirrored(f"{LOG}.1"), run.mirrored(LOG)) == (b"the first\n", b"new\n")


@only_polled
def test_bytes_that_an_older_version_copied_without_a_mark_are_not_copied_twice(
    workspaces: list[FollowedWorkspace], run: FakeRun
) -> None:
    ours, _ = workspaces
    run.write(LOG, b"one\n")
    refresh(ours)
    run.write(LOG, b"two\n")
    MirrorWriter(run.mirror, lambda: None).append(LOG, b"two\n", final=True)
    for line in (b"three\n", b"four\n"):
        run.write(LOG, line)
        refresh(ours)
    assert run.mirrored(LOG) == run.path(LOG).read_bytes()


@only_polled
def test_a_call_without_news_reads_no_copy_again(
    workspaces: list[FollowedWorkspace], run: FakeRun
) -> None:
    ours, _ = workspaces
    refresh(ours)
    run.mirror.path(EVENTS).unlink()  # a new pass would see it, and copy it again
    refresh(ours)
    assert run.mirrored(EVENTS) == b""


@only_polled
def test_a_file_that_is_copied_whole_is_written_only_where_it_differs(
    run: FakeRun, home: Path
) -> None:
    async def folder(_run_id: str) -> str:
        return str(run.folder)

    follower = PolledFollower(PartingHost(home / "box"), folder, whole_every_s=0.0)
    followed = {run.run_id: Followed(run.mirror, lambda: None, over=False)}
    inodes = []
    for step, text in enumerate((b"one", b"one", b"two"), start=1):
        run.path("state.json").write_bytes(text)
        run.emit(EVENTS, [metric(step)], first_t=FIRST_T + step)
        run_async(lambda: follower.copy_new(followed))
        assert run.mirrored("state.json") == text
        inodes.append(run.mirror.path("state.json").stat().st_ino)
    assert inodes[0] == inodes[1]


@only_polled
def test_files_of_a_run_that_are_copied_whole_are_read_seldom_and_at_its_end(
    workspaces: list[FollowedWorkspace], run: FakeRun
) -> None:
    ours, _ = workspaces
    for step, text in enumerate((b"one", b"two"), start=1):
        run.path("state.json").write_bytes(text)
        run.emit(EVENTS, [metric(step)], first_t=FIRST_T + step)
        refresh(ours)
        assert run.steps() == list(range(1, step + 1))
        assert run.mirrored("state.json") == b"one"
    end_run(run)
    until(ours, lambda: run.mirrored("state.json") == b"two")
