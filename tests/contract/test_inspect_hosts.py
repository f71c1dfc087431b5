"""`inspect` on every kind of host: what a run stands at, through its backend."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.backends.network_namespaces import Network
from support.backends.ssh_hosts import Sshd
from support.runs.light_run import lasting, light_spec
from support.runs.running_run import LONGEST_S, pace, run_async, small_spec
from support.session.tiers import at_length

from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import RunFolder
from trainmaster.answers.inspect import InspectionAnswer
from trainmaster.errors.errors import HostError, StateError
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.inspect.inspect_run import inspect_run
from trainmaster.runs.launch.launch import launch
from trainmaster.sync.workspace import Workspace

# On this machine it does what it does over SSH, but for the way of the stacks.
SIMULATED_AND_REAL = pytest.mark.parametrize("host", ["debug", *at_length("gpu1")])


@pytest.fixture
def place(workspace: Workspace, host: str) -> Iterator[Workspace]:
    if host != "gpu1":
        yield workspace
        return
    with Sshd() as sshd:
        workspace.control.put_host(sshd.record("gpu1"), t=1.0)
        yield workspace


async def begin(workspace: Workspace, host: str, folder: Path, faults: str = "") -> str:
    """A run that has come to its fifth step, with more to do than a test lasts."""
    changes = {"steps": "200000", "checkpoint": "{every: 100000}", "eval": "{every_steps: 100000}"}
    if host == "gpu1":
        changes["environment"] = f"{{python: {sys.executable}}}"
    changes["env"] = pace(folder)
    if host == "debug":
        changes["env"] = f'{{TRAINMASTER_FAULTS: "{faults}", TRAINMASTER_STEP_S: "0.02"}}'
    run = (await launch(workspace, small_spec(folder, host=host, **changes))).run_id
    await wait_for_event(workspace, run, until=("step:5",), timeout_s=LONGEST_S)
    return run


@SIMULATED_AND_REAL
def test_a_run_that_continues_is_moving_and_its_stacks_are_brought_here(
    place: Workspace, host: str, tmp_path: Path
) -> None:
    async def work() -> InspectionAnswer:
        return await inspect_run(place, await begin(place, host, tmp_path))

    answer = run_async(work)
    assert answer.verdict == "moving", answer
    assert answer.step is not None and answer.step >= 5
    (ranks,) = answer.ranks
    assert ranks.ranks == [0] and ranks.lines
    assert answer.finding is None
    assert answer.stacks_file is not None
    assert "train" in Path(answer.stacks_file).read_text()


@pytest.mark.parametrize("host", ["debug"])
@pytest.mark.parametrize(
    ("fault", "verdict"),
    [("hang", "stall"), ("hangdata", "hang_data"), ("hangsave", "hang_checkpoint")],
)
def test_what_a_rehearsed_run_hangs_in_is_named(
    place: Workspace, host: str, tmp_path: Path, fault: str, verdict: str
) -> None:
    async def work() -> InspectionAnswer:
        run = await begin(place, host, tmp_path, f"{fault}@8")
        for _ in range(30):
            answer = await inspect_run(place, run)
            if answer.verdict == verdict:
                return answer
        raise AssertionError(answer)

    answer = run_async(work)
    assert answer.silent_s is not None and answer.silent_s > 1
    assert (answer.finding is None) == (verdict == "stall")


@pytest.mark.long  # tests/host/watch/test_inspection.py
@pytest.mark.parametrize("host", ["local"])
def test_a_trainer_that_somebody_stopped_is_reported_with_its_pid(
    place: Workspace, host: str, tmp_path: Path
) -> None:
    async def work() -> tuple[InspectionAnswer, int]:
        run = await begin(place, host, tmp_path)
        folder = RunFolder(Path(place.control.folder(place.control.run(run))))
        process = read_json(folder.attempt(1).process) or {}
        pid = int(process["trainer"]["pid"])
        os.kill(pid, signal.SIGSTOP)
        try:
            for _ in range(10):
                answer = await inspect_run(place, run)
                if answer.verdict == "stall":
                    break
            return answer, pid
        finally:
            os.kill(pid, signal.SIGCONT)

    answer, pid = run_async(work)
    assert answer.verdict == "stall"
    assert f"kill -CONT {pid}" in answer.why


@pytest.mark.parametrize("host", ["debug"])
def test_a_run_that_has_ended_is_refused(place: Workspace, host: str, tmp_path: Path) -> None:
    async def work() -> None:
        spec = small_spec(tmp_path, host=host)
        run = (await launch(place, spec)).run_id
        await wait_for_event(place, run, until=("end",), timeout_s=LONGEST_S)
        with pytest.raises(StateError) as refused:
            await inspect_run(place, run)
        assert refused.value.code == "RUN_ENDED"
        assert refused.value.remedy == f"`trainmaster diagnose {run}` shows what was found."

    run_async(work)


def test_a_host_that_is_cut_off_is_reported_within_the_bound(
    workspace: Workspace, tmp_path: Path
) -> None:
    async def work(network: Network) -> float:
        spec = light_spec(tmp_path, *lasting(), host="gpu1", steps="200000")
        run = (await launch(workspace, spec)).run_id
        await wait_for_event(workspace, run, until=("step:5",), timeout_s=LONGEST_S)
        network.partition("gpu1")
        began = time.monotonic()
        with pytest.raises(HostError) as lost:
            await inspect_run(workspace, run)
        assert lost.value.unanswered and lost.value.retryable
        network.heal("gpu1")
        return time.monotonic() - began

    with Network() as network:
        space, address = network.add("gpu1"), network.address("gpu1")
        with Sshd(netns=space, address=address, port=22) as sshd:
            workspace.control.put_host(sshd.record("gpu1"), t=1.0)
            assert run_async(lambda: work(network)) < 60.0
