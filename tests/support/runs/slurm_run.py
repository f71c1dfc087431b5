"""Runs at a real Slurm, reached over SSH on its login node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.backends.slurm_cluster import SlurmCluster, slurm_cluster
from support.backends.ssh_hosts import Sshd
from support.runs.running_run import CommandLine, small_spec

from trainer_runtime.host.slurm.queue import CACHE

STEPS = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster(accounting=True) as cluster:
        yield cluster


@pytest.fixture
def login(cluster: SlurmCluster) -> Iterator[Sshd]:
    modules = cluster.root / "modules"
    (modules / "tests").mkdir(parents=True, exist_ok=True)
    (modules / "tests" / "1.0").write_text("#%Module1.0\nsetenv LOADED tests-1.0\n")
    with Sshd(environment={**cluster.environment, "MODULEPATH": str(modules)}) as host:
        yield host


def knowing_the_cluster(home: Path, login: Sshd) -> CommandLine:
    """`trainmaster` in a home that knows the cluster."""
    command = CommandLine(home, "cluster", login.home / "trainmaster")
    add_cluster(command, login)
    return command


def add_cluster(command: CommandLine, login: Sshd, *options: str, code: int = 0) -> dict[str, Any]:
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


def submit(command: CommandLine, cluster: SlurmCluster, run: str) -> bool:
    """Whether the login node submits a job at once, without the seconds that lists are kept for."""
    (command.folder(run).host_root / CACHE).unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "trainer_runtime", "submit", "."],
        cwd=command.folder(run).root,
        env={**os.environ, **cluster.environment},
        capture_output=True,
        check=True,
    )
    return bool(json.loads(done.stdout)["started"])


def losses(command: CommandLine, run: str) -> dict[str, Any]:
    found = command("metrics", run, "--key", "loss", "--key", "val_loss", "--all")["runs"][run]
    return {key: (one["steps"], one["values"]) for key, one in found.items()}


def jobs_submitted(command: CommandLine, run: str) -> list[int | str]:
    lines = (command.folder(run).root / "jobs.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [row["job_id"] for row in rows if "generation" in row]


def running_job(cluster: SlurmCluster, run: str) -> str:
    [(number, _)] = cluster.jobs(run, "RUNNING")
    return number


def node_of(cluster: SlurmCluster, run: str) -> str:
    return cluster.run("squeue", "-h", "--states=RUNNING", f"--name={run}", "-o", "%N").strip()
