"""A run at a real Slurm, over as many jobs as it needs, reached over SSH on its login node.

`TRAINMASTER_FAULT_ROUNDS` sets how many faults come in turn at random (none by default),
`TRAINMASTER_FAULT_SEED` which; the run's losses are then compared with those of an undisturbed one.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.backends.slurm_cluster import SlurmCluster, slurm_cluster
from support.backends.ssh_hosts import Sshd
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    begin_with,
    command_line,
    kill,
    pace,
    small_spec,
    standing_after,
    wait_until,
)

from trainer_runtime.box.processes.hold import marker
from trainer_runtime.box.processes.identity import carriers
from trainer_runtime.box.slurm.queue import CACHE

pytestmark = pytest.mark.slow
STEPS = 60
ROUNDS = int(os.environ.get("TRAINMASTER_FAULT_ROUNDS", "0"))
SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))
# As many as pass until a fault is noticed, and more.
_STEPS_OF_A_FAULT = 150
_LONG = "takes minutes: TRAINMASTER_FAULT_ROUNDS sets how many faults come"


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
    status = wait_until(lambda: _expected(here("status", run)), "when Slurm expects it to start")
    assert "free nodes" in status["next_step"]
    assert here("tick")
    for _ in range(4):  # one more than jobs without progress end a run
        [(number, _)] = cluster.jobs(run)
        cluster.run("scancel", number)
        assert submit(here, cluster, run)
    assert len(cluster.jobs(run)) == 1
    cluster.stop_controller()
    assert here("stop", run)["state"] != "stopped"
    cluster.start_controller()
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    assert here("status", run)["state"] == "stopped"
    assert cluster.jobs(run) == []
    cluster.run("scancel", "--name=filler")
    wait_until(lambda: not cluster.jobs("filler"), "free nodes")


def _expected(status: dict[str, Any]) -> dict[str, Any] | None:
    return status if status.get("resumes_at") else None


def test_a_node_without_the_runs_folder_ends_the_run(
    here: CommandLine, cluster: SlurmCluster, login: Sshd, tmp_path: Path
) -> None:
    with cluster.hidden(login.home):
        run = here("launch", spec_file(tmp_path), "--host", "cluster")["run_id"]
        assert here("wait", run, "--until", "end", "--timeout", "120")["event"] == "failed"
    status = here("status", run)
    assert (
        status["reason"] == "folder_missing"
        and "a root that its compute nodes share" in status["next_step"]
    )
    here("tick")
    assert len(jobs_submitted(here, run)) == 1


@pytest.mark.skipif(ROUNDS < 1, reason=_LONG)
def test_a_time_limit_is_a_sessions_end_and_the_next_job_continues(
    here: CommandLine, login: Sshd, tmp_path: Path
) -> None:
    here("hosts", "remove", "cluster")
    add(here, login, "--partition", "blink")  # a minute
    env = begin_with(tmp_path / "standing", standing_after(25, 1))
    run = here("launch", spec_file(tmp_path, env=env), "--host", "cluster")["run_id"]
    here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    before, last = here("status", run, "--detail")["attempts"]
    assert before["reason"] == "session_over"
    assert before["last_step"] == last["started_at_step"] == 26
    assert len(jobs_submitted(here, run)) == 2


@pytest.mark.skipif(ROUNDS < 1, reason=_LONG)
def test_three_jobs_without_a_newer_checkpoint_end_the_run(
    here: CommandLine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    env = begin_with(tmp_path / "standing", standing_after(5, 1, 2, 3))
    run = here("launch", spec_file(tmp_path, env=env), "--host", "cluster")["run_id"]
    for number in (1, 2, 3):
        events = here.folder(run).attempt(number).events
        wait_until(lambda e=events: e.exists() and b'"step":4,' in e.read_bytes(), "four steps")
        node = _node_of(cluster, run)
        cluster.fail_node(node)
        cluster.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
        wait_until(lambda: not cluster.jobs(run), "the job's end")
        cluster.start_node(node)
        cluster.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        assert submit(here, cluster, run)
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    status = here("status", run)
    assert (status["state"], status["reason"]) == ("failed", "no_progress")
    assert len(jobs_submitted(here, run)) == 3


@pytest.mark.skipif(ROUNDS < 1, reason=_LONG)
def test_faults_at_random_leave_the_losses_of_an_undisturbed_run(
    here: CommandLine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    print(f"seed {SEED}, {ROUNDS} faults")
    chosen = random.Random(SEED)
    given = {
        "steps": str(40 + _STEPS_OF_A_FAULT * ROUNDS),
        "recovery": f"{{max_restarts: {4 * ROUNDS}}}",
    }
    spec = spec_file(tmp_path, env=pace(tmp_path, 0.1), **given)
    run = here("launch", spec, "--host", "cluster")["run_id"]
    order = chosen.sample(FAULTS, len(FAULTS))
    for number in range(ROUNDS):
        step = here("status", run)["step"] + 15
        here("wait", run, "--until", f"step:{step},end", "--timeout", str(LONGEST_S))
        fault = order[number] if number < len(order) else chosen.choice(FAULTS)
        print(f"round {number}: {fault.__name__}")
        fault(here, cluster, run)
    done = here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    assert done["event"] == "completed"
    _never_two_at_a_time(here, cluster, run)
    whole = CommandLine(here.home, "local")
    there = whole("launch", spec_file(tmp_path, "whole", **given), "--host", "local")["run_id"]
    whole("wait", there, "--until", "completed", "--timeout", str(LONGEST_S))
    assert losses(here, run) == losses(whole, there)


def _never_two_at_a_time(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    rows = cluster.run("squeue", "-h", "--states=all", f"--name={run}", "-o", "%i %S %e")
    jobs = sorted((int(row.split()[0]), *row.split()[1:]) for row in rows.splitlines())
    assert [number for number, *_ in jobs] == jobs_submitted(here, run)
    ends, begins = [job[2] for job in jobs[:-1]], [job[1] for job in jobs[1:]]
    assert all(end <= begin for end, begin in zip(ends, begins, strict=True))


def _until_the_next(here: CommandLine, cluster: SlurmCluster, run: str, attempt: int) -> None:
    def runs() -> bool:
        here("tick")  # as the keeper would
        assert len(cluster.jobs(run, "RUNNING")) <= 1
        status = here("status", run)
        return bool(status["attempt"] > attempt)

    wait_until(runs, "the next attempt")


def _kill_the_trainer(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt = here("status", run)["attempt"]
    pids = [process.pid for process in carriers(marker(run, attempt))]
    kill(next(pid for pid in pids if b"train.py" in command_line(pid)))
    _until_the_next(here, cluster, run, attempt)


def _cancel_the_job(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt = here("status", run)["attempt"]
    cluster.run("scancel", f"--name={run}")
    _until_the_next(here, cluster, run, attempt)


def _restart_the_controller(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    cluster.stop_controller()
    here("tick")
    cluster.start_controller()


def _end_the_job_as_preemption_does(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt = here("status", run)["attempt"]
    [(number, _)] = cluster.jobs(run, "RUNNING")
    cluster.run("scancel", "--signal=TERM", "--full", number)
    _until_the_next(here, cluster, run, attempt)


def _take_the_node_down(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt, node = here("status", run)["attempt"], _node_of(cluster, run)
    change = partial(cluster.run, "scontrol", "update", f"nodename={node}")
    change("state=down", "reason=test")
    try:
        _until_the_next(here, cluster, run, attempt)
    finally:
        change("state=resume", check=False)  # it may have returned by itself


def _cut_the_nodes_power(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt, node = here("status", run)["attempt"], _node_of(cluster, run)
    cluster.fail_node(node)
    try:
        _until_the_next(here, cluster, run, attempt)
    finally:
        cluster.start_node(node)


def _node_of(cluster: SlurmCluster, run: str) -> str:
    return cluster.run("squeue", "-h", "--states=RUNNING", f"--name={run}", "-o", "%N").strip()


FAULTS: list[Callable[[CommandLine, SlurmCluster, str], None]] = [
    _kill_the_trainer,
    _cancel_the_job,
    _restart_the_controller,
    _end_the_job_as_preemption_does,
    _take_the_node_down,
    _cut_the_nodes_power,
]
