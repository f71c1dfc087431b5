from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.runs.light_run import lasting, light_spec
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    holding,
    kill,
    let_it_run,
    run_async,
    small_spec,
    wait_until,
)
from support.session.tiers import at_length

from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.core.files.manifest import verify
from trainmaster.errors.errors import HostError
from trainmaster.runs.clean import clean
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.fetch import fetch
from trainmaster.runs.launch.launch import launch
from trainmaster.runs.resume.resume import resume
from trainmaster.sync.mirrored_checkpoints import mirrored_step
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.checkpoint_mirror import bring_wanted, due_mirror, mirror_checkpoints

pytestmark = pytest.mark.slow

VARIABLES = '{TRAINMASTER_STEP_S: "0"}'
# Not mirrored by itself, so that the tests say when.
KEPT = "{every: 10, keep_latest: 2, keep_best: 1}"


class Mirrored:
    """A completed run of the debug host, and the mirror of its checkpoints."""

    def __init__(self, workspace: Workspace, tmp_path: Path) -> None:
        self.workspace = workspace
        spec = small_spec(tmp_path, host="debug", env=VARIABLES, checkpoint=KEPT)
        self.run = run_async(lambda: launch(workspace, spec)).run_id
        self.wait()
        self.box = workspace.home.debug_root / "runs" / self.run / "checkpoints"
        self.here = workspace.mirror.of(self.run, 1).path("checkpoints")

    def wait(self) -> None:
        done = run_async(
            lambda: wait_for_event(
                self.workspace, self.run, until=["completed"], timeout_s=LONGEST_S
            )
        )
        assert done.event == "completed"

    def bring(self) -> int:
        return run_async(lambda: mirror_checkpoints(self.workspace, self.run))

    def steps(self, folder: Path) -> list[str]:
        return sorted(path.name for path in folder.glob("step-*"))

    def is_due(self) -> bool:
        """Whether something would be to do, were it mirrored by itself."""
        view = load_view(self.workspace, self.run)
        checkpoint = {**view.run.document["checkpoint"], "mirror": "operator"}
        run = replace(view.run, document={**view.run.document, "checkpoint": checkpoint})
        return due_mirror(self.workspace, replace(view, run=run)) is not None

    @property
    def step(self) -> int | None:
        return mirrored_step(self.workspace, load_view(self.workspace, self.run))


@pytest.fixture
def mirrored(workspace: Workspace, tmp_path: Path) -> Mirrored:
    return Mirrored(workspace, tmp_path)


def damage(checkpoint: Path) -> None:
    path = next(checkpoint.glob("model.*"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


@pytest.mark.attack
def test_copies_beyond_the_quota_of_the_home_stay_due(mirrored: Mirrored) -> None:
    settings = mirrored.workspace.home.settings
    settings.write_text("mirror: {copies_gib: 0.000001}\n")
    with pytest.raises(HostError) as refused:
        mirrored.bring()
    assert (refused.value.code, refused.value.retryable) == ("COPIES_FULL", True)
    assert mirrored.steps(mirrored.here) == [] and mirrored.is_due()
    assert not list(mirrored.here.glob(".writing-*/*"))
    settings.unlink()
    assert mirrored.bring() > 0 and not mirrored.is_due()


def test_verified_checkpoints_come_whole_and_only_once(mirrored: Mirrored) -> None:
    there = mirrored.steps(mirrored.box)
    assert mirrored.bring() == len(there) >= 2
    assert mirrored.steps(mirrored.here) == there
    assert [verify(mirrored.here / name) for name in there] == [[] for _ in there]
    assert mirrored.bring() == 0


def test_what_the_box_has_removed_is_removed_here_but_never_the_newest(
    mirrored: Mirrored, tmp_path: Path
) -> None:
    mirrored.bring()
    shutil.copytree(mirrored.here, tmp_path / "before")
    run_async(lambda: resume(mirrored.workspace, mirrored.run, sets=["steps=90"]))
    mirrored.wait()
    before = mirrored.steps(mirrored.here)
    assert "step-00000060" in before
    mirrored.bring()
    assert mirrored.steps(mirrored.here) == mirrored.steps(mirrored.box)
    assert not mirrored.is_due()
    outlived = next(name for name in before if name not in mirrored.steps(mirrored.box))
    shutil.copytree(tmp_path / "before" / outlived, mirrored.here / outlived)
    assert mirrored.is_due()  # as after a kill between the last one's coming and its leaving
    assert mirrored.bring() == 0
    assert mirrored.steps(mirrored.here) == mirrored.steps(mirrored.box)
    shutil.rmtree(mirrored.box)
    mirrored.bring()
    assert mirrored.steps(mirrored.here)[-1] == "step-00000090"


def test_what_is_wanted_is_here_afterwards_though_another_process_is_at_it(
    mirrored: Mirrored,
) -> None:
    async def work() -> None:
        mirrored.here.mkdir(parents=True)
        lock = try_lock(mirrored.here / ".lock")
        assert lock is not None
        bringing = asyncio.create_task(bring_wanted(mirrored.workspace, mirrored.run))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(bringing), 1.0)
        os.close(lock)
        assert await bringing >= 1

    run_async(work)
    assert mirrored.steps(mirrored.here)[-1] == mirrored.steps(mirrored.box)[-1]


def test_a_step_that_a_later_attempt_saved_again_is_copied_again(mirrored: Mirrored) -> None:
    mirrored.bring()
    first = json.loads((mirrored.here / "step-00000060" / "manifest.json").read_bytes())
    run_async(
        lambda: resume(mirrored.workspace, mirrored.run, start="50", sets=["optimizer.lr=0.001"])
    )
    mirrored.wait()
    mirrored.bring()
    second = json.loads((mirrored.here / "step-00000060" / "manifest.json").read_bytes())
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert verify(mirrored.here / "step-00000060") == []


def test_a_checkpoint_that_is_damaged_on_the_box_is_passed_over(mirrored: Mirrored) -> None:
    damage(mirrored.box / "step-00000060")
    there = mirrored.steps(mirrored.box)
    assert mirrored.bring() == len(there) - 1
    assert mirrored.steps(mirrored.here) == there[:-1]
    assert mirrored.bring() == 0
    assert list(mirrored.here.glob(".writing-*")) == []


def test_half_a_checkpoint_from_before_a_kill_is_resumed_and_checked(
    mirrored: Mirrored,
) -> None:
    writing = mirrored.here / ".writing-step-00000060"
    shutil.copytree(mirrored.box / "step-00000060", writing)
    (writing / "manifest.json").unlink()
    part = next(writing.glob("model.*"))
    data = part.read_bytes()
    part.unlink()
    (writing / f".{part.name}.part").write_bytes(data[: len(data) // 2 - 1] + b"\x01")
    mirrored.bring()
    assert verify(mirrored.here / "step-00000060") == []
    assert list((mirrored.here / "step-00000060").glob(".*")) == []


def test_links_among_a_checkpoints_files_are_not_followed(
    mirrored: Mirrored, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("private")
    path = next((mirrored.box / "step-00000060").glob("model.*"))
    path.unlink()
    path.symlink_to(tmp_path / "key")
    mirrored.bring()
    assert "step-00000060" not in mirrored.steps(mirrored.here)
    assert holding(mirrored.here, b"private") == []


def test_a_mirror_that_can_not_be_written_is_tried_again(mirrored: Mirrored) -> None:
    mirrored.here.parent.mkdir(parents=True, exist_ok=True)
    mirrored.here.write_text("in the way")
    with pytest.raises(HostError) as error:
        mirrored.bring()
    assert (error.value.code, error.value.retryable) == ("ROOT_NOT_WRITABLE", True)
    mirrored.here.unlink()
    assert mirrored.bring() > 0


def test_a_cleaned_runs_checkpoints_are_fetched_from_the_mirror(
    mirrored: Mirrored, tmp_path: Path
) -> None:
    mirrored.bring()
    run_async(lambda: clean(mirrored.workspace, mirrored.run))
    there = tmp_path / "fetched"
    run_async(lambda: fetch(mirrored.workspace, mirrored.run, "latest", there))
    assert verify(there) == []


def test_checkpoints_have_a_second_copy_on_another_disk_of_the_box(
    command: CommandLine, tmp_path: Path
) -> None:
    disk = tmp_path / "other disk"
    disk.mkdir()
    checkpoint = f'{{mirror: "host:{disk}"}}'
    run = command("launch", light_spec(tmp_path, checkpoint=checkpoint))["run_id"]
    command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))

    def newest() -> int | None:
        step: int | None = command("status", run)["checkpoint"].get("mirrored_step")
        return step

    wait_until(lambda: newest() == 60, "the last checkpoint has a copy", LONGEST_S)
    assert sorted(path.name for path in (disk / run).glob("step-*"))[-1] == "step-00000060"
    assert verify(disk / run / "step-00000060") == []


def test_other_places_are_refused_as_not_built(command: CommandLine, tmp_path: Path) -> None:
    for mirror in ("s3://bucket/../x", "host:relative", "elsewhere"):
        checkpoint = f"{{mirror: '{mirror}'}}"
        error = command("plan", small_spec(tmp_path, checkpoint=checkpoint), code=1)["error"]
        assert (error["code"], error["field"]) == ("NOT_YET_SUPPORTED", "checkpoint.mirror")


def transfer_processes(home: Path) -> list[int]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if b"\0transfer\0" in command and f"TRAINMASTER_HOME={home}\0".encode() in environment:
            found.append(int(pid))
    return found


@pytest.mark.parametrize("host", ["local", *at_length("box")])
def test_a_mirror_that_can_not_be_written_is_reported_before_anything(
    command: CommandLine, remote: CommandLine, tmp_path: Path, host: str
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()

    def spec(place: object) -> str:
        python = f"{{python: {sys.executable}}}"
        checkpoint = f'{{every: 20, mirror: "host:{place}"}}'
        return small_spec(tmp_path, host=host, environment=python, checkpoint=checkpoint)

    for place in (f"{blocked}/backup", "/proc/backup"):
        for action in ("plan", "launch"):
            error = command(action, spec(place), code=1)["error"]
            assert (error["code"], error["field"]) == ("ROOT_NOT_WRITABLE", "checkpoint.mirror")
    assert command("runs")["runs"] == []
    command("plan", spec(tmp_path / "deep" / "backup"))
    assert not (tmp_path / "deep").exists()


@pytest.mark.long
def test_checkpoints_are_copied_whichever_process_is_killed_meanwhile(
    command: CommandLine, tmp_path: Path
) -> None:
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")
    chosen = random.Random(seed)
    words = ("--every", "50", *lasting(0.01))
    changes = {"steps": "1000", "checkpoint": "{mirror: operator}"}
    run = command("launch", light_spec(tmp_path, *words, keep_latest=2, **changes))["run_id"]
    killed = 0
    while command("status", run)["state"] not in ("completed", "failed"):
        for pid in transfer_processes(command.home):
            kill(pid)
            killed += 1
        let_it_run(chosen.uniform(0.0, 0.3))
        command("tick")
    print(f"{killed} killed")
    command("wait", run, "--until", "completed", "--timeout", "240")

    def newest() -> int | None:
        step: int | None = command("status", run)["checkpoint"].get("mirrored_step")
        return step

    here = command.home / "mirror" / run / "p1" / "checkpoints"
    there = command.folder(run).checkpoints

    def names(folder: Path) -> list[str]:
        return sorted(path.name for path in folder.glob("step-*"))

    wait_until(
        lambda: newest() == 1000 and names(here) == names(there),
        "all checkpoints are here, and no others",
        LONGEST_S,
    )
    for path in here.glob("step-*"):
        assert verify(path) == []
