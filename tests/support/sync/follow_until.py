"""Follows the host of a test's runs, within a bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from support.runs.running_run import run_async
from support.sync.followed_run import HOST, FakeRun, FollowedWorkspace

from trainmaster.sync.follow import catch_up, following
from trainmaster.sync.last_pass import last_pass

_BOUND_S = 120.0


def refresh(workspace: FollowedWorkspace) -> None:
    run_async(lambda: catch_up(workspace, HOST))


async def seen(met: Callable[[], bool]) -> None:
    """Wait for what following brings, within a bound."""
    deadline = time.monotonic() + _BOUND_S
    while not met():
        assert time.monotonic() < deadline, f"not within {_BOUND_S:.0f} s"
        await asyncio.sleep(0.02)


def until(workspace: FollowedWorkspace, met: Callable[[], bool]) -> None:
    """Follow until then."""

    async def work() -> None:
        async with following(workspace, HOST):
            await seen(met)

    run_async(work)


def has_passed(workspace: FollowedWorkspace, after: float) -> bool:
    return last_pass(workspace.home, HOST).t > after


def all_have(runs: Sequence[FakeRun], steps: list[int]) -> bool:
    return all(run.steps() == steps for run in runs)
