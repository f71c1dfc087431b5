"""A run at a real Slurm, over as many jobs as it needs, reached over SSH on its login node."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.backends.slurm_cluster import SlurmCluster, slurm_cluster
from support.backends.ssh_hosts import Sshd
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    begin_with,
    small_spec,
    standing_after,
    wait_until,
)

pytestmark = pytest.mark.slow
STEPS = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster() as cluster:
        yield cluster


@pytest.fixture
def login(cluster: SlurmCluster) -> Iterator[Sshd]:
    with Sshd(environment=cluster.environment) as host:
        yield host


@pytest.fixture
def here(home: Path, login: Sshd) -> CommandLine:
    """`trainmaster` in a home that knows the cluster."""
    command = CommandLine(home, "cluster", login.home / "trainmaster")
    add(command, login)
    return command


def add(command: CommandLine, login: Sshd, *options: str, code: int = 0) -> dict[str, Any]:
    record = login.record()
    address = f"{record.user}@{record.address}:{record.port}"
    how = ("--key", str(record.key), "--root", record.root, "--launcher", "slurm")
    return command("hosts", "add", "cluster", address, *how, *options, code=code)


def spec_file(folder: Path, name: str = "spec", **changes: str) -> str:
    given = {"steps": str(STEPS), "environment": f"{{python: {sys.executable}}}", **changes}
    given.setdefault("compute", "{gpus: 0, threads: 1}")
    path = folder / f"{name}.yaml"
    path.write_text(small_spec(folder, precision="fp32", **given))
    return str(path)


def losses(command: CommandLine, run: str) -> dict[str, Any]:
    found = command("metrics", run, "--key", "loss", "--key", "val_loss", "--all")["runs"][run]
    return {key: (one["steps"], one["values"]) for key, one in found.items()}


def jobs_submitted(command: CommandLine, run: str) -> list[int]:
    lines = (command.folder(run).root / "jobs.jsonl").read_text().splitlines()
    return [json.loads(line)["job_id"] for line in lines]


def test_a_run_continues_exactly_over_jobs_that_others_end(
    here: CommandLine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    env = begin_with(tmp_path / "standing", standing_after(25, 1))
    run = here("launch", spec_file(tmp_path, env=env), "--host", "cluster")["run_id"]
    folder = here.folder(run)
    events = folder.attempt(1).events
    wait_until(lambda: events.exists() and b'"step":22,' in events.read_bytes(), "22 steps")
    [(number, state)] = cluster.jobs(run)
    assert state == "RUNNING"
    cluster.stop_controller()
    cluster.start_controller()
    cluster.run("scancel", number)
    done = here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert (done["event"], done["step"]) == ("completed", STEPS)
    assert len(jobs_submitted(here, run)) == 2
    status = here("status", run, "--detail")
    assert status["host"] == "cluster"
    before, last = status["attempts"]
    assert before["last_step"] == last["started_at_step"]  # SIGTERM saved
    whole = CommandLine(here.home, "local")
    there = whole("launch", spec_file(tmp_path, "whole"), "--host", "local")["run_id"]
    whole("wait", there, "--until", "completed", "--timeout", str(LONGEST_S))
    assert losses(here, run) == losses(whole, there)
    assert cluster.jobs(run) == []


def test_what_no_job_could_do_is_refused_before_one_is_queued(
    here: CommandLine, cluster: SlurmCluster, login: Sshd, tmp_path: Path
) -> None:
    checked = {row["name"]: row for row in here("hosts", "check", "cluster")["checks"]}
    assert checked["slurm"]["state"] == checked["partition of jobs"]["state"] == "ok"
    spec = spec_file(tmp_path, checkpoint="{every: 10m}")
    many = spec_file(tmp_path, "many", framework="hf", compute="{gpus: 4, threads: 1}")
    for code, options, text in (
        ("PARTITION_UNKNOWN", ["--partition", "nope"], spec),
        ("PARTITION_UNKNOWN", ["--partition", "closed"], spec),
        ("ACCOUNT_REFUSED", ["--partition", "members", "--account", "biology"], spec),
        ("PARTITION_TOO_SHORT", ["--partition", "blink"], spec),
        ("GPU_NOT_FOUND", ["--partition", "gpu"], many),
        ("JOB_REFUSED", ["--constraint", "a&b"], spec),
    ):
        here("hosts", "remove", "cluster")
        add(here, login, *options)
        assert here("launch", text, "--host", "cluster", code=1)["error"]["code"] == code
    here("hosts", "remove", "cluster")
    assert add(here, login, "--qos", "a b", code=2)["error"]["code"] == "BAD_ARGUMENT"
    assert here("runs")["runs"] == []
    assert cluster.run("squeue", "-h") == ""


def test_a_waiting_run_says_why_and_is_stopped_without_a_job(
    here: CommandLine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    filler = ["--nodes=2", "--exclusive", "--time=30", "--output=/dev/null", "--wrap=sleep 600"]
    cluster.run("sbatch", "--job-name=filler", *filler)
    wait_until(lambda: [state for _, state in cluster.jobs("filler")] == ["RUNNING"], "a full one")
    launched = here("launch", spec_file(tmp_path), "--host", "cluster")
    run = launched["run_id"]
    assert launched["state"] == "queued"
    wait_until(lambda: here("status", run)["reason"] == "slurm_resources", "Slurm's reason")
    status = here("status", run)
    assert "free nodes" in status["next_step"] and status["resumes_at"] is not None
    assert here("tick")
    assert len(cluster.jobs(run)) == 1
    cluster.stop_controller()
    assert here("stop", run)["state"] != "stopped"
    cluster.start_controller()
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    assert here("status", run)["state"] == "stopped"
    assert cluster.jobs(run) == []
    cluster.run("scancel", "--name=filler")
    wait_until(lambda: not cluster.jobs("filler"), "free nodes")
