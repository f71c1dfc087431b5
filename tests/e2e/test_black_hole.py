"""A host behind a network that swallows everything without a word: every answer has a bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from support.backends.reachability import TRANSPORTS
from support.backends.ssh_hosts import Network, Sshd
from support.runs.light_run import lasting, light_spec
from support.runs.running_run import LONGEST_S, CommandLine, run_async
from support.sync.mirrors import assert_mirror_equals_the_host

from trainmaster.answers.runs import WaitAnswer
from trainmaster.errors.errors import HostError
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.launch.launch import launch
from trainmaster.runs.status.status import get_status
from trainmaster.runs.stop import stop
from trainmaster.runs.upkeep.maintain import maintaining
from trainmaster.sync.workspace import Workspace

pytestmark = pytest.mark.long

# What a person waits for at most, the connection having been warm; seen: 10, 5, 15 and 20 s.
STATUS_S, WAIT_S, STOP_S, LAUNCH_S = 15.0, 15.0, 25.0, 40.0
HEALED_S = 60.0
AWAY = ("HOST_UNREACHABLE", "LINK_LOST")


class Hosts:
    """One box on record under three names, each reached by another transport."""

    def __init__(self, workspace: Workspace, box: Sshd, folder: Path) -> None:
        self.workspace, self._box, self._folder = workspace, box, folder
        for name in TRANSPORTS:
            workspace.control.put_host(
                box.record(name, transport=name, root=self.root(name)), t=1.0
            )

    def root(self, name: str) -> str:
        return f"{self._box.home}/{name}"

    def spec(self, host: str) -> str:
        words = ("--every", "500", *lasting(0.2))
        return light_spec(self._folder, *words, host=host, steps="20000")

    async def launch(self, host: str) -> str:
        return (await launch(self.workspace, self.spec(host))).run_id

    async def steps_made(self, run: str) -> None:
        await wait_for_event(self.workspace, run, until=["step:20"], timeout_s=LONGEST_S)

    async def stopped(self, run: str) -> str:
        until = ["stopped", "completed"]
        return (await self.wait(run, until, HEALED_S)).event

    async def wait(self, run: str, until: list[str], timeout_s: float) -> WaitAnswer:
        """As the command does it."""
        async with maintaining(self.workspace, run):
            return await wait_for_event(self.workspace, run, until=until, timeout_s=timeout_s)


def test_a_network_that_swallows_everything_keeps_nobody_waiting_and_loses_nothing(
    workspace: Workspace, home: Path, tmp_path: Path
) -> None:
    """All transports in one test: each waits as long as the others."""

    async def story(network: Network, hosts: Hosts) -> list[str]:
        runs = await asyncio.gather(*(hosts.launch(name) for name in TRANSPORTS))
        await asyncio.gather(*(hosts.steps_made(run) for run in runs))
        network.swallow("gpu1")
        by_host = zip(TRANSPORTS, runs, strict=True)
        await asyncio.gather(*(_in_the_dark(hosts, name, run) for name, run in by_host))
        network.heal("gpu1")
        assert await asyncio.gather(*(hosts.stopped(run) for run in runs)) == ["stopped"] * 3
        for run in runs:
            status = await get_status(workspace, run)
            assert (status.state, status.pending) == ("stopped", None)
        await workspace.disconnect()
        return runs

    with (
        Network() as network,
        Sshd(netns=network.add("gpu1"), address=network.address("gpu1"), port=22) as box,
    ):
        hosts = Hosts(workspace, box, tmp_path)
        runs = run_async(lambda: story(network, hosts))
        for name, run in zip(TRANSPORTS, runs, strict=True):
            assert_mirror_equals_the_host(CommandLine(home, name, Path(hosts.root(name))), run)


async def _in_the_dark(hosts: Hosts, host: str, run: str) -> None:
    workspace = hosts.workspace
    status = await _within(STATUS_S, f"{host} status", get_status(workspace, run))
    assert status.state in ("running", "lost")
    waited = await _within(WAIT_S, f"{host} wait", hosts.wait(run, ["completed"], 5.0))
    assert waited.event == "timeout"
    stopped = await _within(STOP_S, f"{host} stop", stop(workspace, run))
    assert stopped.pending is True
    with pytest.raises(HostError) as refused:
        await _within(LAUNCH_S, f"{host} launch", launch(workspace, hosts.spec(host)))
    assert refused.value.code in AWAY and refused.value.retryable
    names = [row.run_id for row in workspace.control.runs() if row.host == host]
    assert names == [run]
    assert workspace.control.desired(run)[1] is False


async def _within(bound_s: float, what: str, work: Coroutine[Any, Any, Any]) -> Any:
    began = time.monotonic()
    try:
        async with asyncio.timeout(bound_s):
            return await work
    finally:
        print(f"{what}: {time.monotonic() - began:.1f} s")
