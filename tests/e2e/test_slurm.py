"""Runs at a real Slurm, reached over SSH on its login node: what is asked of it, what it says."""

from __future__ import annotations

import json
import os
import pwd
import re
from pathlib import Path
from typing import Any

import pytest
from support.backends.slurm_cluster import SlurmCluster
from support.backends.ssh_hosts import Sshd
from support.runs.light_run import light_spec, standing
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    pace,
    wait_until,
)
from support.runs.slurm_run import (
    add_cluster,
    jobs_submitted,
    knowing_the_cluster,
    losses,
    spec_file,
    submit,
)

pytestmark = [pytest.mark.slow, pytest.mark.engine]
IS_LONG = int(os.environ.get("TRAINMASTER_FAULT_ROUNDS", "0")) > 0


@pytest.fixture
def here(home: Path, login: Sshd) -> CommandLine:
    return knowing_the_cluster(home, login)


def test_what_no_job_could_do_is_refused_before_one_is_queued(
    here: CommandLine, cluster: SlurmCluster, login: Sshd, tmp_path: Path
) -> None:
    checked = {row["name"]: row for row in here("hosts", "check", "cluster")["checks"]}
    assert checked["slurm"]["state"] == checked["partition of jobs"]["state"] == "ok"
    assert checked["modules"]["state"] == "ok"
    here("hosts", "remove", "cluster")
    add_cluster(here, login, "--module", "tests/1.0", "--module", "tests/2.0")
    checked = {row["name"]: row for row in here("hosts", "check", "cluster", code=1)["checks"]}
    assert checked["modules"]["untrusted_found"] == "tests/2.0"
    here("hosts", "remove", "cluster")
    cluster.run("sacctmgr", "-i", "add", "user", pwd.getpwuid(os.getuid()).pw_name, "account=tests")
    add_cluster(here, login, "--account", "nope", "--partition", "gpu", "--time", "10m")
    checked = {row["name"]: row for row in here("hosts", "check", "cluster")["checks"]}
    assert checked["accounts"]["state"] == "warn" and "nope" in checked["accounts"]["found"]
    assert "--account NAME`" in checked["accounts"]["remedy"]
    row = next(row for row in here("hosts")["hosts"] if row["name"] == "cluster")
    assert row["job_options"] == "account nope, time 10m" and len(row["gpus"]) == 2
    spec = spec_file(tmp_path, checkpoint="{every: 10m}")
    many = spec_file(tmp_path, "many", framework="hf", compute="{gpus: 4, threads: 1}")
    boxed = "{gpus: 0, launcher: docker, image: localhost/torch:1}"
    contained = spec_file(tmp_path, "contained", environment="auto", compute=boxed)
    for code, options, text in (
        ("PARTITION_UNKNOWN", ["--partition", "nope"], spec),
        ("PARTITION_UNKNOWN", ["--partition", "closed"], spec),
        ("ACCOUNT_REFUSED", ["--partition", "members", "--account", "biology"], spec),
        ("PARTITION_TOO_SHORT", ["--partition", "blink"], spec),
        ("GPU_NOT_FOUND", ["--partition", "gpu"], many),
        ("UNSUPPORTED", ["--partition", "gpu"], contained),
        ("JOB_REFUSED", ["--constraint", "a&b"], spec),
    ):
        here("hosts", "remove", "cluster")
        add_cluster(here, login, *options)
        assert here("launch", text, "--host", "cluster", code=1)["error"]["code"] == code
    here("hosts", "set", "cluster", "--partition", "members", "--offline")
    assert here("launch", spec, "--host", "cluster", code=1)["error"]["code"] == "ACCOUNT_REFUSED"
    here("hosts", "set", "cluster", "--partition", "cpu", "--offline")
    several = ("launch", spec_file(tmp_path), "--host", "cluster", "--vary", "seed=1,2,3")
    assert here(*several, code=1)["error"]["code"] == "JOB_REFUSED"
    assert not any((login.home / "trainmaster").glob("runs/*"))
    here("hosts", "remove", "cluster")
    assert add_cluster(here, login, "--qos", "a b", code=2)["error"]["code"] == "BAD_ARGUMENT"
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
    add_cluster(here, login, *options)
    spec, folder = spec_file(tmp_path, framework="hf", compute=compute), tmp_path / "job"
    answer = here("export", spec, str(folder), "--to", "slurm", "--host", "cluster")
    assert not {"job.sh", "array.sh"} & set(answer["files"])
    script = (folder / "job.sbatch").read_text()
    assert asked <= {line.removeprefix("#SBATCH --") for line in script.splitlines()}
    assert ("module load tests/1.0 || exit 67\n" in script) == ("--module" in options)
    cluster.run("sbatch", "--test-only", str(folder / "job.sbatch"))


def test_a_run_takes_other_options_of_its_jobs_and_continues(
    here: CommandLine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    spec = light_spec(tmp_path, "--every", "2", *standing(5), steps="8")
    run = here("launch", spec, "--host", "cluster")["run_id"]
    here("wait", run, "--until", "step:5", "--timeout", str(LONGEST_S))
    refused = here("hosts", "set", "cluster", "--partition", "nope", code=1)
    assert refused["error"]["code"] == "PARTITION_UNKNOWN"
    changed = here("hosts", "set", "cluster", "--partition", "gpu", "--time", "2h")
    assert (changed["partition"], changed["open_runs"]) == ("gpu", [run])
    assert changed["job_options"] == "time 2h"
    assert f"resume {run} --host cluster" in changed["next_step"]
    here("stop", run)
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    script = here.folder(run).root / "job.sh"
    before = script.read_bytes(), here.folder(run).config.read_bytes()
    here("hosts", "set", "cluster", "--constraint", "a&b", "--offline")
    refused = here("resume", run, "--host", "cluster", code=1)
    assert refused["error"]["code"] == "JOB_REFUSED"
    assert "hosts set cluster --constraint ''" in refused["error"]["fix"]
    assert (script.read_bytes(), here.folder(run).config.read_bytes()) == before
    here("hosts", "set", "cluster", "--constraint", "")
    here("resume", run, "--host", "cluster")
    here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    [job] = wait_until(lambda: cluster.accounted(run)[1:], "its second job in accounting")
    assert job["NodeList"] == "node2"
    assert "--partition=gpu\n" in script.read_text() and "--time=120\n" in script.read_text()
    losses = here("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]
    assert losses["steps"] == list(range(1, 9))
    first, second = here("status", run, "--detail")["attempts"]
    assert (first["last_step"], second["started_at_step"]) == (5, 5)


@pytest.mark.skipif(not IS_LONG, reason="starts PyTorch six times: TRAINMASTER_FAULT_ROUNDS")
def test_a_run_continues_on_fewer_ranks_in_a_job_of_fewer_cores(
    here: CommandLine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    compute = "{gpus: 0, threads: 1, processes: 2}"
    model = "{n_layer: 1, n_head: 2, d_model: 32, dropout: 0.0}"
    same = {"framework": "hf", "compute": compute, "model": model}
    slow = spec_file(tmp_path, **same, env=pace(tmp_path, 0.1))
    run = here("launch", slow, "--host", "cluster")["run_id"]
    here("wait", run, "--until", "step:25,end", "--timeout", str(LONGEST_S))
    here("stop", run)
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    here("resume", run, "--set", "compute.processes=1")
    here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    whole = CommandLine(here.home, "local")
    there = whole("launch", spec_file(tmp_path, "alone", **same), "--host", "local")["run_id"]
    whole("wait", there, "--until", "completed", "--timeout", str(LONGEST_S))
    ours, theirs = (losses(here, one)["loss"] for one in (run, there))
    assert ours == (theirs[0], pytest.approx(theirs[1], rel=1e-4))
    assert "--cpus-per-task=1\n" in (here.folder(run).root / "job.sh").read_text()
    first, second = here("status", run, "--detail")["attempts"]
    assert second["started_at_step"] == first["last_step"] >= 25


def test_limits_of_accounting_are_refused_or_said_with_what_gives_another_job(
    here: CommandLine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    user = pwd.getpwuid(os.getuid()).pw_name
    for account in ("spent", "rich"):
        about = ("description=tests", "organization=tests")
        cluster.run("sacctmgr", "-i", "add", "account", account, *about)
        cluster.run("sacctmgr", "-i", "add", "user", user, f"account={account}")
    cluster.run("sacctmgr", "-i", "modify", "account", "spent", "set", "GrpTRESMins=cpu=0")
    here("hosts", "set", "cluster", "--account", "spent")
    spec = spec_file(tmp_path)
    with cluster.enforcing("associations", "limits"):
        refused = here("launch", spec, "--host", "cluster", code=1)["error"]
        assert refused["code"] == "HOURS_USED_UP" and "account spent" in refused["message"]
        rows = {row["name"]: row for row in here("hosts", "check", "cluster")["checks"]}
        assert rows["hours"]["state"] == "warn"
        assert here("runs")["runs"] == [] and cluster.run("squeue", "-h") == ""
        cluster.run("sacctmgr", "-i", "add", "qos", "small", "MaxTRESPerUser=cpu=1")
        cluster.run("sacctmgr", "-i", "modify", "user", user, "set", "qos+=small")
        here("hosts", "set", "cluster", "--account", "rich", "--qos", "small")
        run = here("launch", light_spec(tmp_path, steps="3"), "--host", "cluster")["run_id"]
        status = wait_until(lambda: _too_large(here("status", run)), "that it never begins")
        assert "It alone asks for more" in status["next_step"]
        _follow(here, status["next_step"].replace("NAME", "normal"))
        here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))


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


def _too_large(status: dict[str, Any]) -> dict[str, Any] | None:
    return status if status["reason"] == "slurm_too_large" else None


def _limited(status: dict[str, Any]) -> dict[str, Any] | None:
    return status if status["reason"] == "slurm_array_limit" else None


def test_a_root_that_compute_nodes_lack_is_refused_before_a_run_is_recorded(
    here: CommandLine, cluster: SlurmCluster, login: Sshd, tmp_path: Path
) -> None:
    spec = light_spec(tmp_path, steps="3")
    launches = (["launch", spec], ["launch", spec, "--vary", "seed=1,2"])
    with cluster.hidden(login.home):
        for words in launches:
            refused = here(*words, "--host", "cluster", code=1)["error"]
            assert (refused["code"], refused["field"]) == ("FOLDER_NOT_SHARED", "host")
            assert "Compute node node1 has no " in refused["message"]
        rows = {row["name"]: row for row in here("hosts", "check", "cluster")["checks"]}
        assert rows["shared folder"]["state"] == "warn"
    assert here("runs")["runs"] == [] and cluster.run("squeue", "-h") == ""
    assert not any((login.home / "trainmaster").glob("runs/*"))
    root = tmp_path / "shared"
    _follow(here, refused["fix"].replace("DIR", str(root)))
    run = here("launch", spec, "--host", "cluster")
    assert "warnings" not in run
    assert [path.name for path in (root / "partitions").iterdir()] == ["cpu"]
    rows = {row["name"]: row for row in here("hosts", "check", "cluster")["checks"]}
    assert rows["shared folder"]["state"] == "ok"
    assert rows["shared folder"]["found"] == "nodes of partition cpu have the root"
    here("wait", run["run_id"], "--until", "completed", "--timeout", str(LONGEST_S))


def test_each_node_of_a_job_is_tried_where_they_are_free(
    here: CommandLine, cluster: SlurmCluster, login: Sshd, tmp_path: Path
) -> None:
    spec = spec_file(tmp_path, framework="hf", compute="{gpus: 0, threads: 1, nodes: 2}")
    with cluster.hidden(login.home, "node2"):
        refused = here("launch", spec, "--host", "cluster", code=1)["error"]
    assert refused["code"] == "FOLDER_NOT_SHARED"
    assert "Compute node node2 has no " in refused["message"]


def test_a_node_without_the_runs_folder_ends_a_run_of_which_no_node_could_be_tried(
    here: CommandLine, cluster: SlurmCluster, login: Sshd, tmp_path: Path
) -> None:
    filler = ["--nodes=2", "--exclusive", "--time=30", "--output=/dev/null", "--wrap=sleep 600"]
    cluster.run("sbatch", "--job-name=filler", *filler)
    wait_until(lambda: [state for _, state in cluster.jobs("filler")] == ["RUNNING"], "a full one")
    with cluster.hidden(login.home):
        launched = here("launch", spec_file(tmp_path), "--host", "cluster")
        run, [untried] = launched["run_id"], launched["warnings"]
        assert "not known yet" in untried and "folder_missing" in untried
        cluster.run("scancel", "--name=filler")
        assert here("wait", run, "--until", "end", "--timeout", "240")["event"] == "failed"
    status = here("status", run)
    assert (
        status["reason"] == "folder_missing"
        and "a root that its compute nodes share" in status["next_step"]
    )
    here("tick")
    assert len(jobs_submitted(here, run)) == 1


def test_a_module_that_nodes_lack_is_named_with_what_continues_the_run(
    here: CommandLine, tmp_path: Path
) -> None:
    here("hosts", "set", "cluster", "--module", "tests/9.9", "--offline")
    run = here("launch", light_spec(tmp_path, steps="3"), "--host", "cluster")["run_id"]
    here("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    status = here("status", run)
    assert (status["state"], status["reason"]) == ("failed", "module_missing")
    _follow(here, status["next_step"].replace("NAME", "tests/1.0"))
    here("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))


def _follow(command: CommandLine, advice: str) -> None:
    """Run the commands of an advice, as they are printed."""
    for words in re.findall(r"`[^`]* -m trainmaster (?:--home \S+ )?([^`]*)`", advice):
        command(*words.split())


def _session_of_its_attempt(command: CommandLine, run: str) -> dict[str, Any] | None:
    """The session that a run's one attempt ended with, once accounting has said so."""
    [attempt] = command("status", run, "--detail")["attempts"]
    return attempt.get("session")


@pytest.mark.smoke
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
    session = wait_until(lambda: _session_of_its_attempt(here, run), "what accounting says of it")
    assert session["outcome"] == job == "over"
    [row] = wait_until(lambda: cluster.accounted(run), "its job in accounting")
    assert [int(row["JobIDRaw"])] == jobs_submitted(here, run)
