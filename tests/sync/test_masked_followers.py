"""What followers keep of a run with secrets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.backends.unreliable_transport import PartingHost
from support.runs.running_run import run_async
from support.sync.follow_until import has_passed, refresh, seen, until
from support.sync.followed_run import HOST, FakeRun, FollowedWorkspace, end_run

from trainmaster.home.paths import Home
from trainmaster.store.secret_values import keep
from trainmaster.sync.follow import following

pytestmark = pytest.mark.slow

LOG = "attempts/1/train.log"
SECRET = "hf_abcdefghijklmnop"


@pytest.fixture(params=[True, False], ids=["multiplexed", "polled"])
def workspace(home: Path, request: pytest.FixtureRequest) -> Iterator[FollowedWorkspace]:
    opened = FollowedWorkspace(
        Home(home), PartingHost(home / "box"), multiplexed=bool(request.param)
    )
    yield opened
    opened.close()


@pytest.fixture
def run(workspace: FollowedWorkspace, home: Path) -> FakeRun:
    return FakeRun(workspace, home / "box" / "runs" / "small-abc234")


def test_secrets_are_masked_however_they_are_cut_into_pieces(
    workspace: FollowedWorkspace, run: FakeRun
) -> None:
    keep(workspace.home, run.run_id, {"HF_TOKEN": SECRET})
    text = f"token={SECRET};\r\nagain {SECRET}{SECRET} hf_abc {SECRET[:-1]}".encode()
    masked = text.replace(SECRET.encode(), b"*" * len(SECRET))

    async def work() -> None:
        async with following(workspace, HOST):
            for position in range(0, len(text), 3):
                run.write(LOG, text[position : position + 3])
                await seen(partial(has_passed, workspace, time.time()))
                assert masked.startswith(run.mirrored(LOG))

    run_async(work)
    assert len(run.mirrored(LOG)) == len(text) - len(SECRET[:-1])
    end_run(run)
    until(workspace, lambda: run.mirrored(LOG) == masked)


def test_what_was_held_back_of_an_earlier_attempt_is_read_once_another_has_begun(
    workspace: FollowedWorkspace, run: FakeRun
) -> None:
    keep(workspace.home, run.run_id, {"HF_TOKEN": SECRET})
    run.write(LOG, b"killed while it said hf_abc")
    refresh(workspace)
    assert run.mirrored(LOG) == b"killed while it said "
    run.write("attempts/2/train.log", b"second\n")
    until(workspace, lambda: run.mirrored(LOG) == b"killed while it said hf_abc")


def test_secrets_that_are_given_later_are_masked_from_then_on(
    workspace: FollowedWorkspace, run: FakeRun
) -> None:
    async def work() -> None:
        async with following(workspace, HOST):
            run.write(LOG, b"one\n")
            await seen(lambda: run.mirrored(LOG) == b"one\n")
            keep(workspace.home, run.run_id, {"HF_TOKEN": SECRET})
            run.write(LOG, f"{SECRET}\n".encode())
            masked = b"*" * len(SECRET)
            await seen(lambda: run.mirrored(LOG) == b"one\n" + masked + b"\n")

    run_async(work)


def test_nothing_is_kept_of_a_run_whose_secrets_cannot_be_read(
    workspace: FollowedWorkspace, run: FakeRun, home: Path
) -> None:
    other = FakeRun(workspace, home / "box" / "runs" / "other-abc234")
    path = workspace.home.secrets(run.run_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{")
    for one in (run, other):
        one.write(LOG, b"line\n")
    refresh(workspace)
    assert (run.mirrored(LOG), other.mirrored(LOG)) == (b"", b"line\n")
