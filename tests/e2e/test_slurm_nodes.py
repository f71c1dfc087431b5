"""One training on two nodes of a job, at a real Slurm.

`TRAINMASTER_FAULT_ROUNDS` has two nodes train with PyTorch, compared with one machine's losses; by
default programs without PyTorch stand for torchrun and the framework.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.backends.slurm_cluster import SlurmCluster, slurm_cluster
from support.backends.ssh_hosts import Sshd
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    command_line,
    kill,
    pace,
    small_spec,
    wait_until,
)

from trainer_runtime.box.processes.hold import marker
from trainer_runtime.box.processes.identity import carriers

pytestmark = pytest.mark.slow
ROUNDS = int(os.environ.get("TRAINMASTER_FAULT_ROUNDS", "0"))
_LONG = "each attempt starts PyTorch four times: TRAINMASTER_FAULT_ROUNDS has it done"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster() as cluster:
        yield cluster


@pytest.fixture
def here(home: Path, cluster: SlurmCluster) -> Iterator[CommandLine]:
    """`trainmaster` in a home that knows the cluster."""
    with Sshd(environment=cluster.environment) as login:
        command, record = CommandLine(home, "cluster", login.home / "trainmaster"), login.record()
        address = f"{record.user}@{record.address}:{record.port}"
        how = ("--key", str(record.key), "--root", record.root, "--launcher", "slurm")
        command("hosts", "add", "cluster", address, *how)
        yield command


def spec_file(folder: Path, name: str = "spec", **changes: str) -> str:
    given = {
        "framework": "hf",
        "precision": "fp32",
        "environment": f"{{python: {sys.executable}}}",
        "compute": "{gpus: 0, threads: 1, nodes: 2}",
        **changes,
    }
    path = folder / f"{name}.yaml"
    path.write_text(small_spec(folder, **given))
    return str(path)


def ranks(run: str, attempt: int) -> list[int]:
    """Those of both nodes: their pids, as this machine has them."""
    pids = [process.pid for process in carriers(marker(run, attempt))]
    words = {pid: command_line(pid) for pid in pids}
    return [
        pid
        for pid in sorted(pids)
        if b"train.py" in words[pid] and b"torch.distributed.run" not in words[pid]
    ]


@pytest.mark.skipif(ROUNDS < 1, reason=_LONG)
def test_two_nodes_of_a_job_have_the_losses_of_one_machine_though_a_rank_is_killed(
    here: CommandLine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    spec = spec_file(tmp_path, env=pace(tmp_path, 0.1))
    run = here("launch", spec, "--host", "cluster")["run_id"]
    here("wait", run, "--until", "step:25,end", "--timeout", str(LONGEST_S))
    status = here("status", run)
    assert status["nodes"] == {"node1": "connected", "node2": "connected"}
    kill(ranks(run, 1)[-1])
    done = here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert done["event"] == "completed"
    assert here("status", run)["attempt"] == 2
    assert (here.folder(run).root / "jobs.jsonl").read_text().count("job_id") == 1
    whole = CommandLine(here.home, "local")
    alone = spec_file(tmp_path, "alone", compute="{gpus: 0, threads: 1, processes: 2}")
    there = whole("launch", alone, "--host", "local")["run_id"]
    whole("wait", there, "--until", "completed", "--timeout", str(LONGEST_S))
    assert losses(here, run) == losses(whole, there)


def losses(command: CommandLine, run: str) -> tuple[list[int], list[float]]:
    found = command("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]
    return found["steps"], found["values"]
