"""Trainings in real containers: adopted, recovered and stopped as processes are, bit for bit."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.backends.ssh_hosts import USER_ID, Sshd
from support.host.container_images import BARE, TORCH, Podman, registry
from support.host.docker_daemon import IMAGE, DockerDaemon
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    begin_with,
    kill,
    processes_of,
    run_async,
    small_spec,
    standing_after,
    wait_until,
)

from trainer_runtime.host.files.files import read_json
from trainmaster.backends.hosts.ssh import SshHost
from trainmaster.backends.launchers.process import ProcessLauncher
from trainmaster.home.paths import Home

pytestmark = [pytest.mark.slow, pytest.mark.engine]
SECRET = "a-secret-of-the-run"
PROGRAM_SPEC = """\
name: program
framework: script
script: {{path: {path}, command: [python3, train.py], checkpoints: {{path: "at_*"}}, resume: []}}
compute: {{launcher: docker, image: "{image}", shm_size: 64m}}
"""
# Steps until it is stopped; then saves, as it does every twenty.
PROGRAM = """\
import os, pathlib, signal, sys, time

begun = os.environ.get("TRAINMASTER_CHECKPOINT")
step, stopped = int(pathlib.Path(begun).read_text()) if begun else 0, []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
while True:
    step += 1
    print(f"step {step} loss {5 / step:.4f}", flush=True)
    if stopped or step % 20 == 0:
        pathlib.Path("part").write_text(str(step))
        pathlib.Path("part").rename(f"at_{step:06}")
    if stopped:
        sys.exit(0)
    time.sleep(0.05)
"""


@pytest.fixture
def contained(
    podman: Podman,
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


def test_a_container_is_adopted_killed_resumed_and_stopped_with_the_losses_of_a_process(
    contained: CommandLine,
    podman: Podman,
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

    assert podman.containers() == []
    assert wait(contained, plain, "end")["state"] == "completed"
    found, whole = losses(contained, run), losses(contained, plain)
    assert len(found) > 50
    assert found == whole[: len(found)]


def test_a_killed_daemon_and_a_killed_hold_cost_nothing_and_leave_no_container(
    docker: DockerDaemon,
    command: CommandLine,
    tmp_path: Path,
) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program/train.py").write_text(PROGRAM)
    spec = PROGRAM_SPEC.format(path=tmp_path / "program", image=IMAGE)
    run = command("launch", spec)["run_id"]
    wait(command, run, "step:30")
    folder = command.folder(run)
    found = read_json(folder.attempt(1).environment) or {}
    assert found["container"]["engine"] == "docker"
    first = processes_of(folder)["trainer"]
    docker.kill()
    wait(command, run, "step:60")
    assert processes_of(folder)["trainer"] == first
    docker.start()  # which stops what its killed predecessor has left running
    wait_until(folder.attempt(2).process.exists, "the next attempt")
    assert (read_json(folder.attempt(1).exit) or {})["code"] == 75
    wait_until(lambda: docker.containers() == [f"{run}-2"], "the next attempt's container")

    wait_until(lambda: {"hold", "trainer"} <= set(processes_of(folder)), "its processes")
    kill(processes_of(folder)["hold"])
    command("stop", run)
    assert wait(command, run, "end")["state"] == "stopped"
    wait_until(lambda: not docker.containers(), "the container's removal")
    steps = command("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]["steps"]
    assert steps == list(range(1, steps[-1] + 1))


@pytest.fixture
def rootless() -> Iterator[tuple[Sshd, Podman]]:
    """A host with an account that is not root and has no subordinate ids, and that one's Podman."""
    folder = Path(tempfile.mkdtemp(prefix="tm-podman-"))
    folder.chmod(0o755)
    engine = Podman(folder, USER_ID, USER_ID)
    places = {name: value for name, value in engine.environment.items() if name != "HOME"}
    with Sshd(user="trainer", environment=places) as host:
        engine.environment["HOME"] = str(host.home)  # below which its images are
        engine.make(BARE)
        yield host, engine
        engine.end()
    shutil.rmtree(folder)


def test_an_ordinary_user_of_a_host_trains_stops_resumes_and_cancels_in_containers(
    rootless: tuple[Sshd, Podman], home: Path, tmp_path: Path
) -> None:
    host, engine = rootless
    record = host.record("box")
    command = CommandLine(home, "box", host.home / "trainmaster")
    address = f"{record.user}@{record.address}:{record.port}"
    command("hosts", "add", "box", address, "--key", str(host.key), "--root", record.root)
    (tmp_path / "program").mkdir()
    (tmp_path / "program/train.py").write_text(PROGRAM)
    spec = PROGRAM_SPEC.format(path=tmp_path / "program", image=BARE)
    run = command("launch", spec, "--host", "box")["run_id"]
    wait(command, run, "step:30")
    folder = command.folder(run)
    settled = read_json(folder.attempt(1).environment) or {}
    assert settled["container"]["rootless"] is True
    assert engine.containers() == [f"{run}-1"]
    assert Path(f"/proc/{processes_of(folder)['trainer']}").stat().st_uid == USER_ID

    command("stop", run)
    assert wait(command, run, "end")["state"] == "stopped"
    assert engine.containers() == []
    command("resume", run)
    wait(command, run, "step:90")
    assert engine.containers() == [f"{run}-2"]
    steps = command("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]["steps"]
    assert steps == list(range(1, steps[-1] + 1))
    assert next(folder.checkpoints.glob("step-*")).stat().st_uid == USER_ID

    async def cancel() -> bool:
        reached = SshHost(record, Home(home))
        try:
            return await ProcessLauncher().cancel(reached, str(folder.root))
        finally:
            await reached.disconnect()

    assert run_async(cancel)
    assert engine.containers() == []


def test_an_image_without_pytorch_is_refused_at_the_launch_or_once_it_was_pulled(
    contained: CommandLine, podman: Podman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = contained("launch", small_spec(tmp_path, compute=boxed(BARE)), code=1)["error"]
    assert (refused["code"], refused["field"]) == ("IMAGE_UNUSABLE", "compute.image")
    assert contained("runs")["runs"] == []
    listed = str(podman.folder / "registries.conf")
    monkeypatch.setitem(contained.environment, "CONTAINERS_REGISTRIES_CONF", listed)
    with registry(podman, "lacking") as (address, _):
        image = f"{address}/lacking:1"
        run = contained("launch", small_spec(tmp_path, compute=boxed(image)))["run_id"]
        assert wait(contained, run, "end")["state"] == "failed"
    status = contained("status", run)
    assert (status["reason"], status["attempt"]) == ("unusable", 1)
    assert f"compute.image {image} lacks torch" in status["evidence"][0]
    assert f"`FROM {image}`" in status["evidence"][0]
    podman("rmi", image)


def test_a_run_is_not_moved_to_a_host_that_can_not_have_its_image(
    contained: CommandLine, podman: Podman, tmp_path: Path
) -> None:
    image = "localhost/moving:1"
    podman("tag", BARE, image)
    (tmp_path / "program").mkdir()
    (tmp_path / "program/train.py").write_text(PROGRAM)
    spec = PROGRAM_SPEC.format(path=tmp_path / "program", image=image)
    run = contained("launch", spec)["run_id"]
    wait(contained, run, "step:30")
    contained("stop", run)
    assert wait(contained, run, "end")["state"] == "stopped"
    podman("rmi", image)
    with Sshd(environment=podman.environment) as host:
        record = host.record("box")
        address = f"{record.user}@{record.address}:{record.port}"
        contained("hosts", "add", "box", address, "--key", str(host.key), "--root", record.root)
        refused = contained("resume", run, "--host", "box", code=1)["error"]
        assert (refused["code"], refused["field"]) == ("IMAGE_UNUSABLE", "compute.image")
        assert not Path(record.root, "runs").exists()
    assert contained("status", run)["host"] == "local"


def test_a_launch_warns_of_a_registry_that_does_not_answer_and_leaves_the_pull_to_the_run(
    contained: CommandLine, tmp_path: Path
) -> None:
    spec = small_spec(tmp_path, compute=boxed("127.0.0.1:1/any:1"), recovery="{max_restarts: 0}")
    launched = contained("launch", spec)
    (warning,) = (one for one in launched["warnings"] if "127.0.0.1:1/any:1" in one)
    assert "can be pulled is not known" in warning
    assert wait(contained, launched["run_id"], "end")["state"] == "failed"
    assert "can't be pulled" in contained("status", launched["run_id"])["evidence"][0]
