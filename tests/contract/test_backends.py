"""One suite for every backend: real processes here and over SSH, simulated ones on `debug`.

What the host's own program decides alone, it decides alike on this machine and over SSH: that is
tested on `local` and on `debug`. tests/e2e/test_faults_over_ssh.py kills trainers over SSH. Where
it does not matter what the trainer computes, it is a program without PyTorch.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.backends.ssh_hosts import Sshd
from support.host.torch_check_cache import torch_checks
from support.runs.light_run import lasting, light_spec, standing
from support.runs.running_run import (
    LONGEST_S,
    begin_with,
    run_async,
    small_spec,
    standing_after,
    wait_until,
)
from support.session.tiers import at_length

from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import RunFolder
from trainmaster.answers.runs import WaitAnswer
from trainmaster.answers.status import StatusAnswer
from trainmaster.errors.errors import StateError
from trainmaster.metrics.run_series import attempt_points
from trainmaster.runs.clean import clean
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.launch.launch import launch
from trainmaster.runs.lists.list_checkpoints import list_checkpoints
from trainmaster.runs.metrics.query_metrics import query_metrics
from trainmaster.runs.resume.resume import resume
from trainmaster.runs.status.status import get_status
from trainmaster.runs.stop import stop
from trainmaster.sync.workspace import Workspace

everywhere = pytest.mark.parametrize("host", ["local", "debug", "gpu1"])
# Over SSH, `test_stop_saves_and_resume_continues_from_there` shows what the others show at length.
everywhere_at_length = pytest.mark.parametrize("host", ["local", "debug", *at_length("gpu1")])
# With real processes: tests/host/supervise.
decided_by_the_host = pytest.mark.parametrize("host", ["debug", *at_length("local")])
# With PyTorch, which trains by itself in tests/train and tests/e2e.
decided_by_the_trainer = pytest.mark.parametrize("host", ["debug", *at_length("local")])


class Place:
    """A backend to run on, and how to do a running trainer harm there."""

    def __init__(self, workspace: Workspace, host: str, folder: Path) -> None:
        self.workspace = workspace
        self.host = host
        self._folder = folder

    def spec(
        self, faults: str = "", *, first: str = "", step_s: float = 0.005, **changes: str
    ) -> str:
        """`first` is run before a real trainer's own code, and `step_s` what a step lasts on
        `debug`."""
        variables = f'TRAINMASTER_FAULTS: "{faults}", TRAINMASTER_STEP_S: "{step_s}"'
        if first:
            begin_with(self._folder / "first", first)
            variables += f", PYTHONPATH: {self._folder / 'first'}"
        return small_spec(self._folder, host=self.host, env=f"{{{variables}}}", **changes)

    async def launch_program(
        self, *words: str, every: int = 20, faults: str = "", step_s: float = 0.005, **changes: str
    ) -> str:
        """Launches a training without PyTorch, by its words; on `debug` a simulated one."""
        if self.host == "debug":
            every_step = {"checkpoint": f"{{every: {every}}}"}
            return await self.launch(faults, step_s=step_s, **every_step, **changes)
        own = ("--every", str(every), "--eval-every", "20", *words)
        spec = light_spec(self._folder, *own, keep_latest=3, host=self.host, **changes)
        return (await launch(self.workspace, spec)).run_id

    async def launch(self, faults: str = "", **spec: Any) -> str:
        torch_checks.lend(self.workspace.home.local_root)
        return (await launch(self.workspace, self.spec(faults, **spec))).run_id

    async def wait(self, run: str, *until: str) -> WaitAnswer:
        return await wait_for_event(self.workspace, run, until=until, timeout_s=LONGEST_S)

    def strike(self, run: str, number: signal.Signals, *reported: str, attempt: int = 1) -> None:
        """Signal a real trainer once its events hold these; simulated ones carry their faults."""
        if self.host == "debug":
            return
        folder = self.run_folder(run).attempt(attempt)

        def has_reported() -> bool:
            events = folder.events.read_text() if folder.events.exists() else ""
            return all(words in events for words in reported)

        wait_until(has_reported, f"{reported} of attempt {attempt}", LONGEST_S)
        trainer = (read_json(folder.process) or {})["trainer"]
        os.kill(trainer["pid"], number)

    async def status(self, run: str) -> StatusAnswer:
        return await get_status(self.workspace, run, detail=True)

    def run_folder(self, run: str) -> RunFolder:
        return RunFolder(Path(self.workspace.control.folder(self.workspace.control.run(run))))


@pytest.fixture
def place(workspace: Workspace, host: str, tmp_path: Path) -> Iterator[Place]:
    if host != "gpu1":
        yield Place(workspace, host, tmp_path)
        return
    with Sshd() as sshd:
        workspace.control.put_host(sshd.record("gpu1"), t=1.0)
        yield Place(workspace, host, tmp_path)


@everywhere_at_length
def test_a_run_that_is_started_often_completes_once_and_leaves_its_record(
    place: Place, tmp_path: Path
) -> None:
    async def work() -> None:
        go = tmp_path / "go"
        run = await place.launch_program(*standing(1, until=go), step_s=0.05)
        backend = place.workspace.backend(place.host)
        started = [await backend.start(run) for _ in range(4)]
        assert started == [False] * 4
        go.touch()
        assert (await place.wait(run, "completed")).event == "completed"
        status = await place.status(run)
        assert (status.state, status.step, status.attempt) == ("completed", 60, 1)
        metrics = await query_metrics(place.workspace, [run], keys=["loss"], everything=True)
        assert metrics.runs[run]["loss"].steps == list(range(1, 61))
        checkpoints = await list_checkpoints(place.workspace, run, verify=True)
        assert [row.step for row in checkpoints.checkpoints] == [20, 40, 60]
        assert all(row.verified for row in checkpoints.checkpoints)
        assert checkpoints.resume_from == 60
        folder = place.run_folder(run)
        assert "**completed**" in folder.status_page.read_text()
        assert json.loads(folder.checkpoint_index.read_bytes())["resume_from"] == 60
        assert (folder.root / "final").is_dir()
        await _clean_keeps_the_record(place, run)

    run_async(work)


async def _clean_keeps_the_record(place: Place, run: str) -> None:
    kept = await clean(place.workspace, run, keep=["best", "final"], dry_run=True)
    assert kept.kept == ["checkpoints/step-00000060", "final"]
    assert place.run_folder(run).config.exists()
    await clean(place.workspace, run)
    assert not place.run_folder(run).root.exists()
    metrics = await query_metrics(place.workspace, [run], keys=["loss"], everything=True)
    assert metrics.runs[run]["loss"].n == 60
    assert (await place.status(run)).state == "completed"
    with pytest.raises(StateError, match="cleaned"):
        await resume(place.workspace, run, start="scratch")


@decided_by_the_trainer
def test_a_killed_trainer_comes_back_with_the_same_losses(place: Place) -> None:
    async def work() -> None:
        changes = {"steps": "240", "checkpoint": "{every: 50}"}
        run = await place.launch(faults="kill@87", first=standing_after(120, 1), **changes)
        place.strike(run, signal.SIGKILL, '"step":80,', '"action":"verified"')
        assert (await place.wait(run, "completed")).event == "completed"
        status = await place.status(run)
        first, second = status.attempts or []
        assert first.reason == "killed"
        assert second.started_at_step in (50, 100)
        before, after = attempt_points(place.workspace, run, "loss").values()
        repeated = set(before) & set(after)
        assert repeated == set(range((second.started_at_step or 0) + 1, max(before) + 1))
        assert {step: before[step] for step in repeated} == {step: after[step] for step in repeated}
        metrics = await query_metrics(place.workspace, [run], keys=["loss"], everything=True)
        assert metrics.runs[run]["loss"].steps == list(range(1, 241))

    run_async(work)


@decided_by_the_trainer
def test_sigterm_from_outside_saves_and_continues_from_there(place: Place) -> None:
    async def work() -> None:
        run = await place.launch(faults="preempt@53", first=standing_after(100, 1), steps="160")
        place.strike(run, signal.SIGTERM, '"step":51,')
        assert (await place.wait(run, "completed")).event == "completed"
        first, second = (await place.status(run)).attempts or []
        assert first.reason == "preempted"
        assert second.started_at_step == first.last_step
        assert 51 <= (first.last_step or 0) < 160

    run_async(work)


@everywhere_at_length
def test_stop_saves_and_resume_continues_from_there(place: Place) -> None:
    async def work() -> None:
        run = await place.launch_program(*standing(200), every=500, steps="2000")
        await place.wait(run, "step:10")
        await stop(place.workspace, run)
        assert (await place.wait(run, "stopped")).state == "stopped"
        stopped = await place.status(run)
        assert stopped.checkpoint is not None
        assert stopped.checkpoint.step == stopped.step
        assert (await stop(place.workspace, run)).state == "stopped"
        sets = [f"steps={stopped.step + 5}"]
        resumed = await resume(place.workspace, run, sets=sets)
        assert resumed.attempt == 2
        assert (await place.wait(run, "completed")).event == "completed"
        done = await place.status(run)
        assert done.step == stopped.step + 5
        assert (done.attempts or [])[1].started_at_step == stopped.step

    run_async(work)


@everywhere_at_length
def test_a_stop_right_after_the_launch_leaves_nothing_running(place: Place) -> None:
    async def work() -> None:
        run = await place.launch_program(*lasting(), steps="2000")
        await stop(place.workspace, run, grace_s=10)
        assert (await place.wait(run, "end")).state == "stopped"
        await asyncio.sleep(0)
        processes = place.run_folder(run).root.glob("attempts/*/exit.json")
        assert len(list(processes)) <= 1

    run_async(work)


@decided_by_the_trainer
def test_what_is_damaged_is_passed_over_and_what_follows_a_resume_superseded(place: Place) -> None:
    async def work() -> None:
        run = await place.launch()
        assert (await place.wait(run, "completed")).event == "completed"
        newest = place.run_folder(run).checkpoints / "step-00000060"
        damaged = next(path for path in sorted(newest.glob("model.*")))
        data = bytearray(damaged.read_bytes())
        data[len(data) // 2] ^= 16
        damaged.write_bytes(bytes(data))
        checked = await list_checkpoints(place.workspace, run, verify=True)
        assert checked.resume_from == 40
        assert checked.skipped[0].step == 60
        assert damaged.name in (checked.skipped[0].untrusted_detail or "")
        with pytest.raises(StateError, match="damaged"):
            await resume(place.workspace, run, start="60", sets=["steps=70"])
        await resume(place.workspace, run, sets=["steps=70"])
        assert (await place.wait(run, "completed")).event == "completed"
        assert ((await place.status(run)).attempts or [])[1].started_at_step == 40

        await resume(place.workspace, run, start="60", sets=["optimizer.lr=0.001"])
        assert (await place.wait(run, "completed")).event == "completed"
        third = ((await place.status(run)).attempts or [])[2]
        assert third.started_at_step == 60
        assert third.set is not None and third.set["optimizer.lr"] == 0.001
        metrics = await query_metrics(place.workspace, [run], keys=["loss"], everything=True)
        by_attempt = attempt_points(place.workspace, run, "loss")
        assert metrics.runs[run]["loss"].values[60:] == list(by_attempt[3].values())

    run_async(work)


@decided_by_the_host
def test_a_configuration_that_fails_at_once_is_not_tried_again(place: Place) -> None:
    async def work() -> None:
        if place.host != "debug":
            python = _python_that_cannot_train(place.workspace.home.local_root)
            run = await place.launch(environment=f"{{python: {python}}}")
        else:
            run = await place.launch(faults="unusable@1")
        assert (await place.wait(run, "completed")).event == "failed"
        status = await place.status(run)
        assert status.attempt == 1
        assert (status.attempts or [])[0].reason in ("unusable", "failed_before_first_step")

    run_async(work)


@decided_by_the_host
def test_restarts_without_progress_are_bounded(place: Place) -> None:
    async def work() -> None:
        run = await place.launch_program(
            *standing(100, 1, 2),
            every=1000,
            faults="kill@12 kill@11",
            steps="2000",
            recovery="{max_restarts: 1}",
        )
        place.strike(run, signal.SIGKILL, '"step":10,')
        place.strike(run, signal.SIGKILL, '"step":10,', attempt=2)
        assert (await place.wait(run, "failed")).event == "failed"
        status = await place.status(run)
        assert status.attempt == 2
        assert (status.reason or "").startswith("max_restarts")

    run_async(work)


@decided_by_the_host
def test_the_time_limit_saves_and_stops(place: Place) -> None:
    async def work() -> None:
        # A real one is prepared within that time, and begins.
        limit_s = 8 if place.host == "debug" else 20
        limits = f"{{max_runtime: {limit_s}s}}"
        run = await place.launch_program(*standing(200), steps="100000", limits=limits)
        assert (await place.wait(run, "stopped")).event == "stopped"
        status = await place.status(run)
        assert (status.reason or "").startswith("time_limit")
        assert status.checkpoint is not None
        assert status.checkpoint.step == status.step

    run_async(work)


def _python_that_cannot_train(folder: Path) -> Path:
    """An interpreter that has everything, until it is given the training script."""
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / "python"
    script = f"""#!/bin/sh
case $1 in -*) exec "{sys.executable}" "$@" ;; esac
echo "ImportError: libcudnn.so.9: cannot open shared object file"
exit 1
"""
    python.write_text(script)
    python.chmod(0o755)
    return python
