"""A run at a real Slurm whose jobs end in all the ways that a cluster ends them.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from support.backends.slurm_cluster import SlurmCluster
from support.backends.ssh_hosts import Sshd
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    begin_with,
    command_line,
    kill,
    standing_after,
    wait_until,
)
from support.runs.slurm_run import (
    add_cluster,
    jobs_submitted,
    knowing_the_cluster,
    losses,
    node_of,
    running_job,
    spec_file,
    submit,
)

from trainer_runtime.host.processes.hold import marker
from trainer_runtime.host.processes.identity import carriers

pytestmark = [pytest.mark.slow, pytest.mark.engine]
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
    "PREEMPTED": "preempted",
    "TIMEOUT": "time_limit",
}
_LONG = "takes minutes: TRAINMASTER_FAULT_ROUNDS sets how many faults come"


@pytest.fixture
def here(home: Path, login: Sshd) -> CommandLine:
    return knowing_the_cluster(home, login)


@pytest.mark.skipif(not IS_LONG, reason=_LONG)
def test_a_time_limit_is_a_sessions_end_and_the_next_job_continues(
    here: CommandLine, login: Sshd, tmp_path: Path
) -> None:
    here("hosts", "remove", "cluster")
    add_cluster(here, login, "--partition", "blink")  # a minute
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
        node = node_of(cluster, run)
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
        add_cluster(here, login, *options)
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
        text = events.read_bytes() if events.exists() else b""
        # A checkpoint's event may come after those of later steps.
        found = [int(step) for step in re.findall(rb'"step":(\d+)', text)]
        return number if found and max(found) - min(found) >= _STEPS_BETWEEN - 3 else 0

    return int(wait_until(stands, "an attempt that stands", LONGEST_S))


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
        found = {
            row["number"]: (row["session"]["outcome"], row["session"].get("untrusted_detail"))
            for row in rows
            if "session" in row
        }
        print(f"said {found}")
        # A controller that is killed before accounting has heard of it forgets who cancelled.
        forgotten = {number for number, one in expected.items() if one == ("cancelled", None)}
        return found.keys() == expected.keys() and all(
            one == expected[number] or (number in forgotten and one[0] == "cancelled")
            for number, one in found.items()
        )

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
    cluster.cancel_as_operator(running_job(cluster, run))
    _until_the_next(here, run, attempt)


def _kill_the_controller(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt, number = _newest_attempt(here, run), running_job(cluster, run)
    cluster.save_job(number)  # a job that a killed controller has not written down, it kills
    cluster.kill_controller()
    here("tick")
    cluster.start_controller()
    assert (attempt, number) == (_newest_attempt(here, run), running_job(cluster, run))


def _preempt_the_job(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt, node = _newest_attempt(here, run), node_of(cluster, run)
    taking = ["--partition=urgent", f"--nodelist={node}", "--exclusive", "--output=/dev/null"]
    cluster.run("sbatch", "--job-name=urgent", *taking, "--wrap=sleep 600")
    try:
        _until_the_next(here, run, attempt)
        assert node_of(cluster, run) != node
    finally:
        cluster.run("scancel", "--name=urgent")


def _ask_its_processes_to_end(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt = _newest_attempt(here, run)
    cluster.run("scancel", "--signal=TERM", "--full", running_job(cluster, run))
    _until_the_next(here, run, attempt)


def _end_its_time(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt = _newest_attempt(here, run)
    cluster.run("scontrol", "update", f"jobid={running_job(cluster, run)}", "timelimit=1")
    _until_the_next(here, run, attempt)


def _drain_the_node(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt, node = _newest_attempt(here, run), node_of(cluster, run)
    with _changed(cluster, node, "drain"):
        cluster.run("scancel", f"--name={run}")
        _until_the_next(here, run, attempt)
        assert node_of(cluster, run) != node


def _take_the_node_down(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt, node = _newest_attempt(here, run), node_of(cluster, run)
    with _changed(cluster, node, "down"):
        _until_the_next(here, run, attempt)


def _cut_the_nodes_power(here: CommandLine, cluster: SlurmCluster, run: str) -> None:
    attempt, node = _newest_attempt(here, run), node_of(cluster, run)
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


FAULTS: list[Callable[[CommandLine, SlurmCluster, str], None]] = [
    _kill_the_trainer,
    _cancel_the_job,
    _cancel_as_somebody_else,
    _kill_the_controller,
    _preempt_the_job,
    _ask_its_processes_to_end,
    _end_its_time,
    _drain_the_node,
    _take_the_node_down,
    _cut_the_nodes_power,
]
