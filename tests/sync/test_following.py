from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.core.journal_records import lines, metric, started
from support.runs.running_run import run_async, wait_until

from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.errors.errors import HostError
from trainmaster.store.run import Run
from trainmaster.sync.follow import catch_up, follower_lock, following
from trainmaster.sync.last_pass import last_pass
from trainmaster.sync.workspace import Workspace

REPOSITORY = Path(__file__).parents[2]
# Follows the host `debug` until it is killed; says so, and when it has the lock.
_FOLLOWER = """
import asyncio, os
from trainmaster.sync.follow import following
from trainer_runtime.core.files.durable import try_lock
from trainmaster.sync.workspace import open_workspace

async def main():
    with open_workspace(os.environ) as workspace:
        async with following(workspace, "debug"):
            print("following", flush=True)
            await asyncio.sleep(600)

asyncio.run(main())
"""


class Hosted:
    """A placed run on the host `debug`, whose host is this test."""

    def __init__(self, workspace: Workspace, name: str = "small") -> None:
        self.run_id = f"{name}-abc234"
        run = Run(self.run_id, name, 1.0, "debug", "", {"steps": 10}, {}, {})
        folder = str(workspace.home.debug_root / "runs" / self.run_id)
        workspace.control.add_run(run, Desired(DesiredState.RUNNING, 1), "in_process", folder, None)
        workspace.control.set_placed(run, 2.0)
        self.workspace = workspace
        self.attempt = Path(folder) / "attempts" / "1"
        self.attempt.mkdir(parents=True)
        self._steps = 0
        self._write(lines((started(0, 1000),))[0])

    def step(self) -> int:
        """One more step on the box."""
        self._steps += 1
        fields = (started(), *[metric(step) for step in range(1, self._steps + 1)])
        self._write(lines(fields)[-1])
        return self._steps

    def seen(self) -> list[int]:
        """The steps that the database knows."""
        return [
            x
            for piece in self.workspace.metrics.series(self.run_id, "loss")
            for x, _, _ in self.workspace.metrics.points(piece.sid)
        ]

    def _write(self, line: bytes) -> None:
        with (self.attempt / "events.jsonl").open("ab") as file:
            file.write(line)


@pytest.fixture
def hosted(workspace: Workspace) -> Hosted:
    return Hosted(workspace)


@pytest.fixture
def followers(home: Path, hosted: Hosted) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes that follow the host."""
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}/server:{REPOSITORY}"}
    found = [
        subprocess.Popen([sys.executable, "-c", _FOLLOWER], env=environment, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    for follower in found:
        assert follower.stdout is not None and follower.stdout.readline() == b"following\n"
    yield found
    for follower in found:
        follower.kill()
        follower.communicate()


def holder(workspace: Workspace, followers: list[subprocess.Popen[bytes]]) -> int:
    """Which of the followers has the lock's file open for itself."""
    path = workspace.home.follower_lock("debug")

    def found() -> int | None:
        if not path.exists():
            return None
        inode = str(path.stat().st_ino)
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].split(":")[-1] == inode:
                pids = [follower.pid for follower in followers]
                return pids.index(int(fields[4])) + 1 if int(fields[4]) in pids else None
        return None

    return int(wait_until(found, "one follower has the lock")) - 1


def test_one_of_two_follows_and_the_other_takes_over_when_it_is_killed(
    workspace: Workspace, hosted: Hosted, followers: list[subprocess.Popen[bytes]]
) -> None:
    first = holder(workspace, followers)
    for _ in range(5):
        hosted.step()
    wait_until(lambda: hosted.seen() == [1, 2, 3, 4, 5], "five steps are seen")
    followers[first].send_signal(signal.SIGKILL)
    followers[first].wait()
    hosted.step()
    wait_until(lambda: hosted.seen() == [1, 2, 3, 4, 5, 6], "the sixth is seen")
    assert holder(workspace, followers) == 1 - first
    original = (hosted.attempt / "events.jsonl").read_bytes()
    mirror = workspace.mirror.of(hosted.run_id, 1)
    assert mirror.read("attempts/1/events.jsonl", 0, 1 << 20) == original


def test_catching_up_shows_what_was_there_when_it_was_asked_for(
    workspace: Workspace, hosted: Hosted
) -> None:
    hosted.step()
    run_async(lambda: catch_up(workspace, "debug"))
    assert hosted.seen() == [1]
    hosted.step()
    run_async(lambda: catch_up(workspace, "debug"))
    assert hosted.seen() == [1, 2]


def test_catching_up_beside_a_follower_waits_for_its_next_pass(
    workspace: Workspace, hosted: Hosted, followers: list[subprocess.Popen[bytes]]
) -> None:
    holder(workspace, followers)
    wait_until(lambda: last_pass(workspace.home, "debug").t, "a first pass")

    def caught_up() -> bool:
        asked, begun = time.time(), time.monotonic()
        run_async(lambda: catch_up(workspace, "debug"))
        has_passed = last_pass(workspace.home, "debug").t >= asked
        assert has_passed or time.monotonic() - begun > 1.9  # nobody waits for longer than 2 s
        return has_passed

    for _ in range(3):
        step = hosted.step()
        wait_until(caught_up, "the follower's next pass")
        assert hosted.seen()[-1] == step


@pytest.mark.slow
def test_catching_up_is_bounded_where_a_follower_hangs(
    workspace: Workspace, hosted: Hosted, followers: list[subprocess.Popen[bytes]]
) -> None:
    first = holder(workspace, followers)
    followers[first].send_signal(signal.SIGSTOP)
    hosted.step()
    begun = time.monotonic()
    run_async(lambda: catch_up(workspace, "debug"))
    assert time.monotonic() - begun < 60  # the follower hangs for good
    followers[first].send_signal(signal.SIGCONT)


def test_following_lets_go_of_the_lock_at_its_end(workspace: Workspace, hosted: Hosted) -> None:
    async def work() -> None:
        async with following(workspace, "debug"):
            pass

    run_async(work)
    lock = try_lock(workspace.home.follower_lock("debug"))
    assert lock is not None
    os.close(lock)


def test_a_run_whose_files_are_gone_does_not_keep_others_from_being_followed(
    workspace: Workspace, hosted: Hosted
) -> None:
    other = Hosted(workspace, "other")
    (hosted.attempt / "events.jsonl").unlink()
    other.step()
    run_async(lambda: catch_up(workspace, "debug"))
    assert other.seen() == [1]


def test_a_mirror_that_cannot_be_written_is_no_error_and_stops_no_other_run(
    workspace: Workspace, hosted: Hosted
) -> None:
    other = Hosted(workspace, "other")
    blocked = workspace.mirror.of(hosted.run_id, 1).root
    blocked.parent.mkdir(parents=True)
    blocked.touch()
    hosted.step()
    other.step()
    run_async(lambda: catch_up(workspace, "debug"))
    assert (hosted.seen(), other.seen()) == ([], [1])
    blocked.unlink()
    run_async(lambda: catch_up(workspace, "debug"))
    assert hosted.seen() == [1]


def test_a_process_that_needs_the_host_alone_gets_it_from_a_follower_that_ends(
    workspace: Workspace, hosted: Hosted
) -> None:
    async def work() -> None:
        async with follower_lock(workspace.home, ["debug", "local"]):
            assert try_lock(workspace.home.follower_lock("debug")) is None
            assert try_lock(workspace.home.follower_lock("local")) is None

    run_async(work)
    for host in ("debug", "local"):
        lock = try_lock(workspace.home.follower_lock(host))
        assert lock is not None
        os.close(lock)


def test_a_host_that_is_not_known_is_reported(workspace: Workspace) -> None:
    with pytest.raises(HostError, match="No host is called 'moon'"):
        workspace.backend("moon")
