"""Trainings in real containers: recovered, stopped and resumed as processes are, bit for bit."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.box.container_images import (  # noqa: F401 - fixtures
    BARE,
    TORCH,
    Podman,
    docker_socket,
    podman,
    podman_folder,
)
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    begin_with,
    kill,
    processes_of,
    small_spec,
    standing_after,
    wait_until,
)

from trainer_runtime.box.files.files import read_json

pytestmark = pytest.mark.slow
SECRET = "a-secret-of-the-run"


@pytest.fixture
def contained(
    podman: Podman,  # noqa: F811 - a fixture
    home: Path,
) -> Iterator[CommandLine]:
    """`trainmaster` on a machine with Podman; what its containers have left is removed."""
    yield CommandLine(home)
    podman("rm", "--force", "--all", "--time", "0")


def boxed(image: str = TORCH) -> str:
    return f"{{threads: 1, launcher: docker, image: {image!r}, shm_size: 1g}}"


def losses(command: CommandLine, run: str) -> Any:
    return command("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]["values"]


def wait(command: CommandLine, run: str, until: str) -> dict[str, Any]:
    return command("wait", run, "--until", until, "--timeout", str(LONGEST_S))


def test_a_container_is_killed_adopted_stopped_and_resumed_with_the_losses_of_a_process(
    contained: CommandLine,
    podman: Podman,  # noqa: F811 - a fixture
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(contained.environment, "HF_TOKEN", SECRET)
    contained.home.mkdir()
    (contained.home / "settings.yaml").write_text("secrets: {allow: [HF_TOKEN]}\n")
    text = small_spec(tmp_path)
    plain = contained("launch", text)["run_id"]
    planted = begin_with(podman.planted / "standing", standing_after(30, 1, 2))
    text = text.replace("{threads: 1}", boxed()) + f"env: {planted}\nsecrets: [HF_TOKEN]\n"
    run = contained("launch", text)["run_id"]
    wait(contained, run, "step:30")
    folder = contained.folder(run)
    settled = read_json(folder.attempt(1).environment)
    assert settled is not None
    assert settled["container"]["image"] == TORCH
    assert settled["container"]["digest"].startswith("localhost/torch@sha256:")
    name = f"{run}-1"
    assert podman.containers() == [name]
    pid = int(podman("inspect", "--format", "{{.State.Pid}}", name))
    assert processes_of(folder)["trainer"] == pid
    assert SECRET.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    assert SECRET not in podman("inspect", name)
    (rank,) = contained("inspect", run)["ranks"]
    assert "train.py" in str(rank)

    kill(processes_of(folder)["supervisor"])
    wait_until(lambda: "supervisor" not in processes_of(folder), "the supervisor's end")
    contained("tick")
    wait_until(lambda: "supervisor" in processes_of(folder), "another supervisor")
    assert processes_of(folder)["trainer"] == pid

    os.kill(pid, signal.SIGKILL)
    wait(contained, run, "step:50")
    assert (read_json(folder.attempt(1).exit) or {})["signal"] == signal.SIGKILL
    assert podman.containers() == [f"{run}-2"]
    contained("stop", run)
    assert wait(contained, run, "end")["state"] == "stopped"
    assert (read_json(folder.attempt(2).exit) or {})["code"] == 75

    contained("resume", run)
    assert wait(contained, run, "end")["state"] == "completed"
    assert wait(contained, plain, "end")["state"] == "completed"
    assert losses(contained, run) == losses(contained, plain)
    assert podman.containers() == []


def test_the_end_of_a_trainer_whose_hold_is_gone_leaves_no_container(
    contained: CommandLine,
    podman: Podman,  # noqa: F811 - a fixture
    tmp_path: Path,
) -> None:
    """Through Docker's own program, which Podman answers."""
    with docker_socket(podman) as address:
        contained.environment["DOCKER_HOST"] = address
        contained.environment["PATH"] = str(all_but(tmp_path / "programs", "podman"))
        planted = begin_with(podman.planted / "ending", standing_after(10, 1))
        spec = small_spec(tmp_path, compute=boxed(), env=planted, steps="20")
        run = contained("launch", spec)["run_id"]
        wait(contained, run, "step:10")
        folder = contained.folder(run)
        found = read_json(folder.attempt(1).environment) or {}
        assert Path(found["container"]["program"]).name == "docker"
        kill(processes_of(folder)["hold"])
        contained("stop", run)
        assert wait(contained, run, "end")["state"] == "stopped"
        wait_until(lambda: not podman.containers(), "the container's removal")
        assert contained("checkpoints", run)["resume_from"] >= 10


def test_an_image_without_pytorch_ends_the_run_before_it_starts_and_says_why(
    contained: CommandLine, tmp_path: Path
) -> None:
    run = contained("launch", small_spec(tmp_path, compute=boxed(BARE)))["run_id"]
    assert wait(contained, run, "end")["state"] == "failed"
    status = contained("status", run)
    assert (status["reason"], status["attempt"]) == ("unusable", 1)
    assert f"compute.image {BARE} lacks torch" in status["evidence"][0]
    assert f"`FROM {BARE}`" in status["evidence"][0]


def all_but(folder: Path, left_out: str) -> Path:
    """A folder with every program of the search path but one."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in os.listdir(place) if os.path.isdir(place) else ():
            if program != left_out and not (folder / program).is_symlink():
                (folder / program).symlink_to(Path(place, program))
    return folder
