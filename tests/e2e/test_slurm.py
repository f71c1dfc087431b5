"""A run at a real Slurm, over as many jobs as it needs, reached over SSH on its login node.

`TRAINMASTER_FAULT_ROUNDS` sets how many faults come in turn at random (one by default),
`TRAINMASTER_FAULT_SEED` which; the run's losses are then compared with those of an undisturbed one,
and its attempts with the cluster's accounting.
"""

from __future__ import annotations

import json
import os
import pwd
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.backends.slurm_cluster import SlurmCluster, slurm_cluster
from support.backends.ssh_hosts import Sshd
from support.runs.light_run import light_spec, standing
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    begin_with,
    command_line,
    kill,
    small_spec,
    standing_after,
    wait_until,
)

from trainer_runtime.box.processes.hold import marker
from trainer_runtime.box.processes.identity import carriers
from trainer_runtime.box.slurm.queue import CACHE

pytestmark = pytest.mark.slow
STEPS = 60
IS_LONG = "TRAINMASTER_FAULT_ROUNDS" in os.environ
ROUNDS = int(os.environ.get("TRAINMASTER_FAULT_ROUNDS", "1"))
SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))
# More than a checkpoint's interval, so that no three jobs in a row are without progress.
_STEPS_BETWEEN = 25
# What `status` says of how a job ended, by Slurm's words.
_OUTCOMES = {
    "CANCELLED": "cancelled",
    "COMPLETED": "over",  # it saved, and ended by itself
    "FAILED": "failed",
    "NODE_FAIL": "node_failed",
    "TIMEOUT": "time_limit",
}
_LONG = "takes minutes: TRAINMASTER_FAULT_ROUNDS sets how many faults come"


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


def jobs_submitted(command: CommandLine, run: str) -> list[int | str]:
    lines = (command.folder(run).root / "jobs.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [row["job_id"] for row in rows if "generation" in row]


def test_what_no_job_could_do_is_refused_before_one_is_queued(
    here: CommandLine, cluster: SlurmCluster, login: Sshd, tmp_path: Path
) -> None:
    checked = {row["name"]: row for row in here("hosts", "check", "cluster")["checks"]}
    assert checked["slurm"]["state"] == checked["partition of jobs"]["state"] == "ok"
    assert checked["modules"]["state"] == "ok"
    here("hosts", "remove", "cluster")
    add(here, login, "--module", "tests/1.0", "--module", "tests/2.0")
    checked = {row["name"]: row for row in here("hosts", "check", "cluster", code=1)["checks"]}
    assert checked["modules"]["untrusted_found"] == "tests/2.0"
    here("hosts", "remove", "cluster")
    cluster.run("sacctmgr", "-i", "add", "user", pwd.getpwuid(os.getuid()).pw_name, "account=tests")
    add(here, login, "--account", "nope", "--partition", "gpu", "--time", "10m")
    checked = {row["name"]: row for row in here("hosts", "check", "cluster")["checks"]}
    assert checked["accounts"]["state"] == "warn" and "nope" in checked["accounts"]["found"]
    assert "--account NAME`" in checked["accounts"]["remedy"]
    row = next(row for row in here("hosts")["hosts"] if row["name"] == "cluster")
    assert row["job_options"] == "account nope, time 10m" and len(row["gpus"]) == 2
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
    several = ("launch", spec_file(tmp_path), "--host", "cluster", "--vary", "seed=1,2,3")
    assert here(*several, code=1)["error"]["code"] == "JOB_REFUSED"
    assert not any((login.home / "trainmaster").glob("runs/*"))
    here("hosts", "remove", "cluster")
    assert add(here, login, "--qos", "a b", code=2)["error"]["code"] == "BAD_ARGUMENT"
    assert here("runs")["runs"] == []
    assert cluster.run("squeue", "-h") == ""


@pytest.mark.parametrize(
    ("options", "compute", "asked"),
    [
        ([], "{gpus: 0, processes: 4, threads: 1}", {"partition=cpu"}),
        ([], "{gpus: 0, threads: 1, nodes: 2}", {"partition=cpu", "nodes=2"}),
        (
            ["--partition", "gpu", "--gres", "gpu:a100", "--time", "2h", "--module", "tests/1.0"],
            "{gpus: 1}",
            {"partition=gpu", "gres=gpu:a100:1"},
        ),
    ],
)
def test_the_script_that_is_exported_for_a_cluster_fits_its_nodes(
    here: CommandLine,
    cluster: SlurmCluster,
    login: Sshd,
    tmp_path: Path,
    options: list[str],
    compute: str,
    asked: set[str],
) -> None:
    here("hosts", "remove", "cluster")
    add(here, login, *options)
    spec, folder = spec_file(tmp_path, framework="hf", compute=compute), tmp_path / "job"
    answer = here("export", spec, str(folder), "--to", "slurm", "--host", "cluster")
    assert not {"job.sh", "array.sh"} & set(answer["files"])
    script = (folder / "job.sbatch").read_text()
    assert asked <= {line.removeprefix("#SBATCH --") for line in script.splitlines()}
    assert ("module load tests/1.0 || exit 67\n" in script) == ("--module" in options)
    cluster.run("sbatch", "--test-only", str(folder / "job.sbatch"))


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
    [(number, _)] = cluster.jobs(run)
    cluster.cancel_as_operator(number)
    ended = wait_until(lambda: _ended(here("status", run)), "who cancelled it")
    assert ended == {"number": int(number), "outcome": "cancelled", "untrusted_detail": "by nobody"}
    cluster.run("scontrol", "update", "partitionname=cpu", "state=drain")
    here("wait", run, "--until", "end", "--timeout", "6", code=4)
    status = here("status", run)
    assert status["reason"] == "slurm_refused"
    assert "Slurm refuses the next job" in status["next_step"]
    assert "partition" in status["untrusted_detail"].lower()
    cluster.run("scontrol", "update", "partitionname=cpu", "state=up")
    here("tick", "--every", "1m")
    assert cluster.jobs(run) == []  # the timer keeps to the pause
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
    status = here("status", run)
    assert status["state"] == "stopped"
    assert _ended(status)["untrusted_detail"] == "by trainmaster"
    assert cluster.jobs(run) == []
    cluster.run("scancel", "--name=filler")
    wait_until(lambda: not cluster.jobs("filler"), "free nodes")


def _ended(status: dict[str, Any]) -> dict[str, Any]:
    """The run's newest job, once it is known who has ended it."""
    session = status.get("session") or {}
    return session if "untrusted_detail" in session else {}


def _expected(status: dict[str, Any]) -> dict[str, Any] | None:
    return status if status.get("resumes_at") else None


def test_runs_of_one_spec_are_the_tasks_of_one_array_each_with_a_chain_of_its_own(
    here: CommandLine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    over = tmp_path / "over"
    spec = light_spec(tmp_path, *standing(3, until=over), steps="5")
    asked = ("launch", spec, "--host", "cluster", "--vary", "seed=1,2,3", "--at-once", "2")
    launched = here(*asked, "--idempotency-key", "once")
    runs = [row["run_id"] for row in launched["runs"]]
    assert [row["labels"] for row in launched["runs"]] == [{"seed": seed} for seed in "123"]
    assert here(*asked, "--idempotency-key", "once")["array"] == launched["array"]
    waiting = runs[2]
    status = wait_until(lambda: _limited(here("status", waiting)), "the array's limit")
    array, _, index = str(status["session"]["number"]).partition("_")
    tasks = [f"{array}_{number}" for number in range(3)]
    assert index == "2" and [cluster.jobs(run)[0][0] for run in runs] == tasks
    cluster.cancel_as_operator(tasks[2])
    ended = wait_until(lambda: _ended(here("status", waiting)), "who cancelled it")
    assert ended == {"number": tasks[2], "outcome": "cancelled", "untrusted_detail": "by nobody"}
    over.touch()
    for run in runs:
        here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    first, second, (task, next_job) = (jobs_submitted(here, run) for run in runs)
    assert [*first, *second, task] == tasks and isinstance(next_job, int)
    seeds = [json.loads(here.folder(run).config.read_text())["seed"] for run in runs]
    assert seeds == [1, 2, 3]


def _limited(status: dict[str, Any]) -> dict[str, Any] | None:
    return status if status["reason"] == "slurm_array_limit" else None


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


def test_a_program_runs_as_a_job(here: CommandLine, cluster: SlurmCluster, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.mkdir()
    over = tmp_path / "over"
    standing = f"while not os.path.exists({str(over)!r}): time.sleep(0.1)"
    (program / "train.py").write_text(
        f"import os, time\nprint('step 1 loss 2.5', flush=True)\n{standing}\n"
    )
    spec = f"name: other\nframework: script\nsteps: 1\nscript: {{path: {program}, "
    (tmp_path / "other.yaml").write_text(spec + "command: [python3, train.py]}\n")
    run = here("launch", str(tmp_path / "other.yaml"), "--host", "cluster")["run_id"]
    begun = wait_until(lambda: here("status", run)["session"].get("ends_at"), "its time limit")
    over.touch()
    wait_until(lambda: here("status", run)["state"] == "completed", "its end")
    assert begun and "ends_at" not in here("status", run)["session"]
    job = wait_until(lambda: here("status", run)["session"].get("outcome"), "how its job ended")
    [attempt] = here("status", run, "--detail")["attempts"]
    assert attempt["session"]["outcome"] == job == "over"
    [row] = wait_until(lambda: cluster.accounted(run), "its job in accounting")
    assert [int(row["JobIDRaw"])] == jobs_submitted(here, run)


@pytest.mark.skipif(not IS_LONG, reason=_LONG)
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


@pytest.mark.skipif(not IS_LONG, reason=_LONG)
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


def test_a_move_and_faults_at_random_leave_the_losses_of_an_undisturbed_run(
    here: CommandLine, cluster: SlurmCluster, login: Sshd, tmp_path: Path
) -> None:
    print(f"seed {SEED}, {ROUNDS} faults")
    over = tmp_path / "over"
    attempts = range(1, ROUNDS + 3)
    env = begin_with(tmp_path / "standing", standing_after(_STEPS_BETWEEN, *attempts, until=over))
    steps = {"steps": str(_STEPS_BETWEEN * (ROUNDS + 1) + 35)}
    kept = {"checkpoint": "{every: 20, keep_latest: 3, mirror: operator}"}
    given = {**steps, **kept, "recovery": f"{{max_restarts: {4 * ROUNDS}}}"}
    run = _moved(here, login, spec_file(tmp_path, env=env, **given))
    with waiting_for(here, run) as waiting:
        for number, fault in enumerate(_faults_in_turn()):
            attempt = _standing_attempt(here, run)
            print(f"round {number}: {fault.__name__} of attempt {attempt}", flush=True)
            fault(here, cluster, run)
            assert len(cluster.jobs(run, "RUNNING")) <= 1
        attempt = _standing_attempt(here, run)
        assert cluster.run("squeue", "-h", f"--name={run}", "-o", "%l").strip() == "30:00"
        assert _variable(run, attempt, "LOADED") == {"tests-1.0"}
        _agrees_with_accounting(here, cluster, run)
        over.touch()
        assert waiting.wait(LONGEST_S) == 0
    assert here("status", run)["state"] == "completed"
    _never_two_at_a_time(here, cluster, run)
    whole = CommandLine(here.home, "local")
    there = whole("launch", spec_file(tmp_path, "whole", **given), "--host", "local")["run_id"]
    whole("wait", there, "--until", "completed", "--timeout", str(LONGEST_S))
    assert losses(here, run) == losses(whole, there)


def _moved(here: CommandLine, login: Sshd, spec: str) -> str:
    """A run that began on this machine and is on the cluster now, where a job was refused first."""
    begun = CommandLine(here.home, "local")
    run = str(begun("launch", spec, "--host", "local")["run_id"])
    _standing_attempt(begun, run)
    begun("stop", run)
    begun("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    for options, code in (
        (["--constraint", "a&b"], 1),
        (["--module", "tests/1.0", "--time", "30m"], 0),
    ):
        here("hosts", "remove", "cluster")
        add(here, login, *options)
        answer = here("resume", run, "--host", "cluster", code=code)
        assert here("status", run)["host"] == ("local" if code else "cluster"), answer
    _until_the_next(here, run, 1)
    return run


@contextmanager
def waiting_for(here: CommandLine, run: str) -> Iterator[subprocess.Popen[str]]:
    """A command that waits for the run's end, and submits its jobs meanwhile."""
    waiting = here.start("wait", run, "--until", "end", "--timeout", "86400")
    try:
        yield waiting
    finally:
        waiting.kill()
        waiting.communicate()


def _faults_in_turn() -> Iterator[Callable[[CommandLine, SlurmCluster, str], None]]:
    """Each once before any comes again."""
    chosen, order = random.Random(SEED), []
    for _ in range(ROUNDS):
        order = order or chosen.sample(FAULTS, len(FAULTS))
        yield order.pop()


def _standing_attempt(here: CommandLine, run: str) -> int:
    """The newest attempt, once it has come as far as it comes by itself."""

    def stands() -> int:
        number = _newest_attempt(here, run)
        events = here.folder(run).attempt(number).events
        found = re.findall(rb'"step":(\d+)', events.read_bytes()) if events.exists() else []
        return number if found and int(found[-1]) - int(found[0]) >= _STEPS_BETWEEN - 3 else 0

    return int(wait_until(stands, "an attempt that stands"))


def _variable(run: str, attempt: int, name: str) -> set[str]:
    """The values of an environment variable in an attempt's processes."""
    begin = f"{name}=".encode()
    found = set()
    for process in carriers(marker(run, attempt)):
        with suppress(OSError):  # it has ended
            variables = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            found |= {one[len(begin) :].decode() for one in variables if one.startswith(begin)}
    return found


def _newest_attempt(here: CommandLine, run: str) -> int:
    return max((int(path.name) for path in here.folder(run).root.glob("attempts/*")), default=0)


def _never_two_at_a_time(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    def rows() -> list[dict[str, str]]:
        found = cluster.accounted(run)
        return [] if any(row["End"] == "Unknown" for row in found) else found

    jobs = wait_until(rows, "the ends of all jobs in accounting")
    assert [int(row["JobIDRaw"]) for row in jobs] == jobs_submitted(here, run)
    ends, begins = [job["End"] for job in jobs[:-1]], [job["Start"] for job in jobs[1:]]
    assert all(int(end) <= int(begin) for end, begin in zip(ends, begins, strict=True))


def _agrees_with_accounting(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    """The attempts from the second on lie within the jobs, and say how these ended."""
    begun_t = _begun_t(here, run)

    def holding() -> list[dict[str, str]]:
        print(rows := cluster.accounted(run), begun_t)  # it hears of a job a little later
        begun = [row for row in rows if row["Start"].isdigit()]
        found = [[row for row in begun if int(row["Start"]) <= t <= _end_of(row)] for t in begun_t]
        return [rows[0] for rows in found] if all(found) else []

    held = wait_until(holding, "a job of each attempt in accounting")
    jobs = cluster.accounted(run)
    last = {row["JobIDRaw"]: number for number, row in enumerate(held, 2)}
    assert list(last) == [row["JobIDRaw"] for row in jobs]
    expected = {
        number: _said_of(row) for number, row in enumerate(held, 2)
        if last[row["JobIDRaw"]] == number and row["State"] != "RUNNING"
    }  # fmt: skip

    def said() -> bool:
        rows = here("status", run, "--detail")["attempts"]
        return expected == {
            row["number"]: (row["session"]["outcome"], row["session"].get("untrusted_detail"))
            for row in rows
            if "session" in row
        }

    wait_until(said, f"the words of accounting: {expected}")


def _begun_t(here: CommandLine, run: str) -> list[float]:
    lines = map(json.loads, here.folder(run).journal.read_text().splitlines())
    begun_t = [line["t"] for line in lines if line["kind"] == "attempt_starting"]
    return begun_t[1:]  # the first was on this machine


def _end_of(row: dict[str, str]) -> float:
    return float("inf") if row["End"] == "Unknown" else 1.0 + int(row["End"])


def _said_of(row: dict[str, str]) -> tuple[str, str | None]:
    word, _, user = row["State"].partition(" by ")
    return _OUTCOMES[word], f"by {pwd.getpwuid(int(user)).pw_name}" if user else None


def _until_the_next(here: CommandLine, run: str, attempt: int) -> None:
    wait_until(lambda: _newest_attempt(here, run) > attempt, "the next attempt", LONGEST_S)


def _kill_the_trainer(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt = _newest_attempt(here, run)
    pids = [process.pid for process in carriers(marker(run, attempt))]
    kill(next(pid for pid in pids if b"train.py" in command_line(pid)))
    _until_the_next(here, run, attempt)


def _cancel_the_job(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt = _newest_attempt(here, run)
    cluster.run("scancel", f"--name={run}")
    _until_the_next(here, run, attempt)


def _cancel_as_somebody_else(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt = _newest_attempt(here, run)
    cluster.cancel_as_operator(_running(cluster, run))
    _until_the_next(here, run, attempt)


def _kill_the_controller(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt, number = _newest_attempt(here, run), _running(cluster, run)
    cluster.save_job(number)  # a job that a killed controller has not written down, it kills
    cluster.kill_controller()
    here("tick")
    cluster.start_controller()
    assert (attempt, number) == (_newest_attempt(here, run), _running(cluster, run))


def _end_the_job_as_preemption_does(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt = _newest_attempt(here, run)
    cluster.run("scancel", "--signal=TERM", "--full", _running(cluster, run))
    _until_the_next(here, run, attempt)


def _end_its_time(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt = _newest_attempt(here, run)
    cluster.run("scontrol", "update", f"jobid={_running(cluster, run)}", "timelimit=1")
    _until_the_next(here, run, attempt)


def _drain_the_node(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt, node = _newest_attempt(here, run), _node_of(cluster, run)
    with _changed(cluster, node, "drain"):
        cluster.run("scancel", f"--name={run}")
        _until_the_next(here, run, attempt)
        assert _node_of(cluster, run) != node


def _take_the_node_down(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt, node = _newest_attempt(here, run), _node_of(cluster, run)
    with _changed(cluster, node, "down"):
        _until_the_next(here, run, attempt)


def _cut_the_nodes_power(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt, node = _newest_attempt(here, run), _node_of(cluster, run)
    cluster.fail_node(node)
    try:
        _until_the_next(here, run, attempt)
    finally:
        cluster.start_node(node)


@contextmanager
def _changed(cluster: SlurmCluster, node: str, state: str) -> Iterator[None]:
    """Inside, a node is in a state that its administrator has given it."""
    change = partial(cluster.run, "scontrol", "update", f"nodename={node}")
    change(f"state={state}", "reason=test")
    try:
        yield
    finally:
        change("state=resume", check=False)  # it may have returned by itself


def _running(cluster: SlurmCluster, run: str) -> str:
    [(number, _)] = cluster.jobs(run, "RUNNING")
    return number


def _node_of(cluster: SlurmCluster, run: str) -> str:
    return cluster.run("squeue", "-h", "--states=RUNNING", f"--name={run}", "-o", "%N").strip()


FAULTS: list[Callable[[CommandLine, SlurmCluster, str], None]] = [
    _kill_the_trainer,
    _cancel_the_job,
    _cancel_as_somebody_else,
    _kill_the_controller,
    _end_the_job_as_preemption_does,
    _end_its_time,
    _drain_the_node,
    _take_the_node_down,
    _cut_the_nodes_power,
]
