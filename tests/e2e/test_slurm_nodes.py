"""One training on two nodes of a job, at a real Slurm.

`TRAINMASTER_FAULT_ROUNDS` has two nodes train with PyTorch, compared with one machine's losses; by
default programs without PyTorch stand for torchrun and the framework.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.backends.slurm_cluster import NODES, SlurmCluster, slurm_cluster
from support.backends.ssh_hosts import Sshd
from support.host.two_nodes import expected_losses, stand_in_run
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    command_line,
    kill,
    pace,
    small_spec,
    wait_until,
)

from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.lines import complete_lines, decode
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.processes.hold import marker
from trainer_runtime.host.processes.identity import carriers
from trainer_runtime.host.slurm.queue import CACHE
from trainmaster.home.assets import find_assets
from trainmaster.plan.job_script import job_files

pytestmark = [pytest.mark.slow, pytest.mark.engine]
ROUNDS = int(os.environ.get("TRAINMASTER_FAULT_ROUNDS", "0"))
STEPS = 300
_NVIDIA_SMI = """\
#!/bin/sh
test "$(hostname)" = node2 && echo "0, NVIDIA A100-SXM4-80GB, 81920, 80000, 550.54, 8.0"
"""
_LONG = "each attempt starts PyTorch four times: TRAINMASTER_FAULT_ROUNDS has it done"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster() as cluster:
        yield cluster


class JobOfNodes:
    """A run in a folder that all nodes share, submitted as a client does."""

    def __init__(self, root: Path, cluster: SlurmCluster, nodes: int = 2) -> None:
        self.cluster = cluster
        self.run = RunFolder(root / "runs" / f"nodes-{os.getpid()}")
        config = stand_in_run(self.run, root / "corpus", STEPS, 0.02)
        limits = {"limit_minutes": 30, "cpus": 1, "margin_s": 20.0, "memory_mib": 500}
        every = {"nodes": nodes, "processes": nodes, "taking_part": list(range(nodes))}
        config = {**config, "slurm": limits, "compute": {**config["compute"], **every}}
        self.run.config.write_text(json.dumps(config))
        for name, data in job_files(config, self.run.root.name, find_assets()).items():
            (self.run.root / name).write_bytes(data)
        self.ask("running", 1)

    def ask(self, state: str, generation: int) -> None:
        self.run.desired.write_text(json.dumps({"state": state, "generation": generation}))

    def submit(self, **variables: str) -> None:
        (self.run.host_root / CACHE).unlink(missing_ok=True)
        command = [sys.executable, "-m", "trainer_runtime", "submit", "."]
        environment = {**os.environ, **self.cluster.environment, **variables}
        subprocess.run(command, cwd=self.run.root, env=environment, check=True)

    def record(self) -> Record:
        record = Record()
        data = self.run.journal.read_bytes() if self.run.journal.exists() else b""
        for line in complete_lines(data)[0]:
            record.apply(decode(line))
        return record

    def until(self, state: str) -> Record:
        def come() -> Record | None:
            record = self.record()
            return record if record.state.value == state else None

        return wait_until(come, f"the state {state}: {self.words}")

    def until_step(self, step: int, attempt: int) -> None:
        def come() -> bool:
            return max(self.losses(attempt), default=0) >= step

        wait_until(come, f"step {step} of attempt {attempt}: {self.words}")

    def until_idle(self) -> None:
        wait_until(lambda: not self.cluster.jobs(self.run.root.name), "the job's end")

    def losses(self, attempt: int) -> dict[int, float]:
        path = self.run.attempt(attempt).events
        lines = complete_lines(path.read_bytes() if path.exists() else b"")[0]
        events = [decode(line).document for line in lines]
        return {e["step"]: e["values"]["loss"] for e in events if e["kind"] == "metric"}

    @property
    def words(self) -> str:
        path = self.run.root / "logs/job.out"
        return path.read_text()[-1500:] if path.exists() else ""


@pytest.fixture
def job(cluster: SlurmCluster, tmp_path: Path) -> Iterator[JobOfNodes]:
    made = JobOfNodes(tmp_path, cluster)
    yield made
    cluster.run("scancel", "--signal=KILL", "--full", f"--name={made.run.root.name}", check=False)
    made.until_idle()


def test_nodes_of_jobs_continue_exactly_after_a_killed_rank_and_a_cancelled_job(
    job: JobOfNodes,
) -> None:
    job.submit()
    job.until_step(30, attempt=1)
    assert job.record().nodes == {"node1": "connected", "node2": "connected"}
    assert {path.stat().st_mode & 0o777 for path in job.run.root.glob("**/.nodes.json")} == {0o600}
    kill(rank_of_second_node(job.run, 1))
    job.until_step(60, attempt=2)
    [(number, _)] = job.cluster.jobs(job.run.root.name)
    job.cluster.run("scancel", number)
    job.until_idle()
    with job.cluster.hidden(job.run.host_root, "node2"):
        for _ in range(3):
            assert job.record().reason != "folder_missing"  # others of the cluster may have it
            job.submit()
            job.until_idle()
    assert "node2 has no" in str(job.record().detail)
    assert str(job.record().detail).endswith(", in 3 jobs in a row")
    job.ask("running", 2)
    job.submit()
    record = job.until("completed")
    killed, cancelled, last = record.attempts
    assert "first rank 1 on node node2" in str(killed.detail)
    assert last.started_at_step == cancelled.last_step  # both nodes saved
    found = job.losses(1) | job.losses(2) | job.losses(3)
    assert found == expected_losses(STEPS)
    job.until_idle()
    assert not job.run.nodes.exists()
    assert job.record().nodes == {"node1": "connected", "node2": "connected"}


def test_nodes_that_a_firewall_parts_end_the_run_with_their_names(job: JobOfNodes) -> None:
    rule = ["ipproto", "tcp", "dport", "20000-31999", "prohibit"]
    with job.cluster.rule("node2", *rule):
        job.submit()
        record = job.until("failed")
    assert record.reason == "nodes_unreachable"
    assert str(record.detail).startswith("node2 can't connect to node1 on port ")
    assert record.attempts == []


def test_nodes_two_of_which_are_parted_end_the_run_with_their_names(tmp_path: Path) -> None:
    with slurm_cluster(nodes=(*NODES, "node3")) as cluster:
        job = JobOfNodes(tmp_path, cluster, nodes=3)
        with cluster.firewall("node3", "node2"):
            job.submit()
            record = job.until("failed")
        job.until_idle()
        where = f"node2 can't connect to node3 ({cluster.address('node3')}, port "
    assert record.reason == "nodes_unreachable"
    assert str(record.detail).startswith(where) and str(record.detail).endswith(": no answer)")
    assert record.attempts == []


def test_nodes_that_differ_end_the_run_with_what_differs(job: JobOfNodes, tmp_path: Path) -> None:
    program = tmp_path / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(_NVIDIA_SMI)
    program.chmod(0o755)
    job.submit(PATH=f"{program.parent}:{os.environ['PATH']}")
    record = job.until("failed")
    assert record.reason == "nodes_differ"
    assert record.detail == "GPUs of node1 and node2 differ: none, and NVIDIA A100-SXM4-80GB"


def test_a_second_node_without_the_runs_folder_ends_the_run_with_its_name(job: JobOfNodes) -> None:
    with job.cluster.hidden(job.run.host_root, "node2"):
        job.submit()
        record = job.until("failed")
    assert record.reason == "folder_missing"
    assert record.detail == f"node node2 has no {job.run.root}"


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


def rank_of_second_node(run: RunFolder, attempt: int) -> int:
    """Its pid, as this machine has it."""
    pids = [process.pid for process in carriers(marker(run.root.name, attempt))]
    [found] = [
        pid
        for pid in pids
        if Path(f"/proc/{pid}/cwd").resolve() == run.node(1).root
        and b"train.py" in (words := command_line(pid))
        and b"-m" not in words  # as launchers have it
    ]
    return found


@pytest.mark.skipif(ROUNDS < 1, reason=_LONG)
def test_two_nodes_of_a_job_have_the_losses_of_one_machine_though_a_rank_is_killed(
    here: CommandLine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    spec = spec_file(tmp_path, env=pace(tmp_path, 0.1))
    run = here("launch", spec, "--host", "cluster")["run_id"]
    here("wait", run, "--until", "step:25,end", "--timeout", str(LONGEST_S))
    status = here("status", run)
    assert status["nodes"] == {"node1": "connected", "node2": "connected"}
    kill(rank_of_second_node(here.folder(run), 1))
    done = here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert done["event"] == "completed"
    assert here("status", run)["attempt"] == 2
    log = (here.folder(run).node(1).attempt(2).ranks / "1.log").read_text()
    lines = [line for line in log.splitlines()[-100:] if line.strip()]
    assert here("logs", run, "--rank", "1")["lines"] == lines
    assert (here.folder(run).root / "jobs.jsonl").read_text().count("job_id") == 1
    whole = CommandLine(here.home, "local")
    alone = spec_file(tmp_path, "alone", compute="{gpus: 0, threads: 1, processes: 2}")
    there = whole("launch", alone, "--host", "local")["run_id"]
    whole("wait", there, "--until", "completed", "--timeout", str(LONGEST_S))
    assert losses(here, run) == losses(whole, there)


def losses(command: CommandLine, run: str) -> tuple[list[int], list[float]]:
    found = command("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]
    return found["steps"], found["values"]


@pytest.mark.skipif(ROUNDS < 1, reason=_LONG)
def test_an_exported_folder_trains_on_two_nodes_saves_when_asked_and_continues(
    here: CommandLine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    here("export", spec_file(tmp_path, env=pace(tmp_path, 0.1)), str(folder), "--to", "slurm")
    first = cluster.address("node1")  # the cluster's names are in no table of names
    given = {"PYTHON": sys.executable, "MASTER_ADDR": first, "GLOO_SOCKET_IFNAME": "eth0"}
    environment = {**os.environ, **cluster.environment, **given}

    def submit() -> str:
        smaller = ("--mem=2G", "--time=30")
        command = ["sbatch", "--parsable", *smaller, "job.sbatch"]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True)
        return done.stdout.decode().strip()

    job, events = submit(), folder / "events.jsonl"
    wait_until(lambda: events.exists() and b'"step":12,' in events.read_bytes(), "twelve steps")
    cluster.run("scancel", "--signal=TERM", job)
    wait_until(lambda: not cluster.jobs("small"), "a saved end", LONGEST_S)
    assert json.loads((folder / "state.json").read_text())["state"] == "stopped"
    submit()
    wait_until(lambda: not cluster.jobs("small"), "the end", LONGEST_S)
    assert json.loads((folder / "state.json").read_text())["state"] == "completed"
    whole = CommandLine(here.home, "local")
    alone = spec_file(tmp_path, "alone", compute="{gpus: 0, threads: 1, processes: 2}")
    there = whole("launch", alone, "--host", "local")["run_id"]
    whole("wait", there, "--until", "completed", "--timeout", str(LONGEST_S))
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    points = [line for line in lines if line["kind"] == "metric"]
    found = {line["step"]: line["values"]["loss"] for line in points if "loss" in line["values"]}
    loss = whole("metrics", there, "--key", "loss", "--all")["runs"][there]["loss"]
    assert found == dict(zip(loss["steps"], loss["values"], strict=True))
