"""One training on two hosts: real sshds in networks and process namespaces of their own, torchrun
over gloo between them.

`TRAINMASTER_FAULT_ROUNDS` sets how many faults come in turn at random (none by default: there
tests/box/nodes has them without PyTorch), `TRAINMASTER_FAULT_SEED` which, `TRAINMASTER_STRATEGIES`
under which strategies; the run's losses are then compared with one host's.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.backends.ssh_hosts import Network, Sshd
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    begin_with,
    command_line,
    kill,
    pace,
    paced,
    run_async,
    small_spec,
    wait_until,
)
from support.train.ranks_on_cpu import BY_GLOO

from trainer_runtime.core.files.manifest import verify
from trainer_runtime.core.protocol.lines import complete_lines, decode
from trainmaster.plan.facts import HostFacts, TorchFacts
from trainmaster.runs.planning.probe_nodes import probe_nodes
from trainmaster.sync.workspace import open_workspace
from trainmaster.words.errors import HostError

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("TRAINMASTER_FAULT_ROUNDS", "1"))
SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))
STRATEGIES = os.environ.get("TRAINMASTER_STRATEGIES", "ddp,zero3").split(",")
NAMES = ("gpu1", "gpu2")
_BETWEEN_FAULTS = 25
# Both processes add up what each of them says at every step; the first one saves.
PROGRAM = """\
import json, os, socket, sys, time
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
rank, size = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])
assert sys.argv[1:5] == [str(size), str(rank), where[0], str(where[1])]
step, total = json.load(open(sys.argv[5])) if len(sys.argv) > 5 else (0, 0)
if rank == 0:
    other = socket.create_server(where).accept()[0].makefile("rwb")
while rank and "other" not in globals():
    try:
        other = socket.create_connection(where).makefile("rwb")
    except OSError:
        time.sleep(0.02)
while step < 60:
    time.sleep(0.05)
    other.write(b"%d\\n" % (step * (rank + 1)))
    other.flush()
    step, total = step + 1, total + step * (rank + 1) + int(other.readline())
    print(f"step {step} loss {1000 - total / 10}", flush=True)
    if rank == 0 and step % 10 == 0:
        with open(f"ckpt-{step}.part", "w") as file:
            json.dump([step, total], file)
        os.rename(f"ckpt-{step}.part", f"ckpt-{step}.json")
"""
_LONG = "each attempt starts PyTorch four times: TRAINMASTER_FAULT_ROUNDS sets how many"


class TwoHosts:
    """Two hosts that know nothing of one another, and a client that knows both."""

    def __init__(self, folder: Path, network: Network, hosts: dict[str, Sshd]) -> None:
        self.folder, self.network, self.hosts = folder, network, hosts
        home = folder / "home"
        self.command = CommandLine(home, "gpu1", hosts["gpu1"].home / "trainmaster")
        for name in hosts:
            self.add(name)

    def add(self, name: str) -> None:
        record = self.hosts[name].record(name)
        address = f"{record.user}@{record.address}:{record.port}"
        where = ["--key", str(record.key), "--root", record.root]
        self.command("hosts", "add", name, address, *where)

    def spec(self, **changes: str) -> str:
        usual = {
            "framework": "hf",
            "host": "[gpu1, gpu2]",
            "environment": f"{{python: {sys.executable}}}",
            "env": pace(self.folder, 0.1),
            "precision": "fp32",
        }
        return small_spec(self.folder, **{**usual, **changes})

    def shared(self, strategy: str, step_s: float, **changes: str) -> str:
        """A spec for ranks that go by a strategy, with steps that last for so long and more."""
        own = BY_GLOO if strategy.startswith("zero") else ""
        environment = begin_with(self.folder / f"{strategy}-{step_s}", own + paced(step_s))
        compute = f"{{threads: 1, strategy: {strategy}}}"
        return self.spec(**{"env": environment, "compute": compute, **changes})

    def kill_supervisor(self) -> None:
        (pid,) = self.members("gpu1")
        kill(pid)

    def losses(self, run: str) -> dict[int, float]:
        found = self.command("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]
        return dict(zip(found["steps"], found["values"], strict=True))

    def ranks(self, name: str) -> list[int]:
        """The pids of the ranks on a host."""
        here = self.hosts[name].processes
        return [pid for pid in here if _is_rank(command_line(pid))]

    def members(self, name: str) -> list[int]:
        here = self.hosts[name].processes
        return [pid for pid in here if b"supervise" in command_line(pid)]

    def until_step(self, run: str, step: int) -> None:
        wait_for = ("--until", f"step:{step},end", "--timeout", str(LONGEST_S))
        self.command("wait", run, *wait_for)

    def status(self, run: str) -> dict[str, Any]:
        return self.command("status", run)


def _is_rank(words: list[bytes]) -> bool:
    return b"train.py" in words and b"-m" not in words  # as launchers have it


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoHosts]:
    with ExitStack() as opened:
        network = opened.enter_context(Network())
        hosts = {}
        for name in NAMES:
            space = network.add(name)
            made = Sshd(netns=space, address=network.address(name), pid_namespace=True)
            hosts[name] = opened.enter_context(made)
        yield TwoHosts(tmp_path_factory.mktemp("two-hosts"), network, hosts)


def test_two_hosts_share_a_model_out_and_are_cleaned(two: TwoHosts) -> None:
    """The supervisor is killed before it has taken the second host's part of a checkpoint."""
    run = two.command("launch", two.shared("zero3", 0.3, steps="40"))["run_id"]
    checkpoints = two.command.folder(run).checkpoints
    wait_until(checkpoints.joinpath("step-00000020").exists, "a checkpoint", LONGEST_S)
    two.kill_supervisor()
    wait_until(checkpoints.joinpath(".gathering/1-00000040").exists, "the next save")
    assert not checkpoints.joinpath("step-00000040").exists()
    two.command("tick")
    ended = two.command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert ended["event"] == "completed"
    status = two.status(run)
    assert (status["attempt"], status["step"]) == (1, 40)
    assert status["nodes"] == {"gpu1": "connected", "gpu2": "connected"}
    for step in (20, 40):
        saved = checkpoints / f"step-{step:08d}"
        assert verify(saved) == []
        found = {path.name for path in saved.rglob("*rank_*") if "optim" in path.name}
        assert len(found) == 2  # one of them gpu2 has sent
        assert {path.name for path in saved.glob("rng_state_*")} == {
            "rng_state_0.pth",
            "rng_state_1.pth",
        }
    log = two.hosts["gpu2"].home / f"trainmaster/runs/{run}/attempts/1/ranks/1.log"
    lines = two.command("logs", run, "--rank", "1")["lines"]
    assert lines == [line for line in log.read_text().splitlines()[-100:] if line.strip()]
    assert two.command("logs", run, "--rank", "2", code=2)["error"]["code"] == "BAD_ARGUMENT"
    assert two.command("clean", run, "--yes")["freed_bytes"] > 0
    for host in two.hosts.values():
        assert not (host.home / "trainmaster/runs" / run).exists()


def test_hosts_that_cannot_reach_one_another_are_refused(two: TwoHosts) -> None:
    first = two.network.address("gpu1")
    route = ["ip", "-n", two.network.namespace("gpu2"), "route"]
    subprocess.run([*route, "add", "prohibit", f"{first}/32"], check=True)
    try:
        error = _probing_error(two, [_facts("gpu1"), _facts("gpu2")])
    finally:
        subprocess.run([*route, "del", "prohibit", f"{first}/32"], check=True)
    assert error.code == "NODES_UNREACHABLE"
    assert "gpu2 can't connect to gpu1 on port" in error.message and first in error.message


def test_a_firewall_that_bars_the_ports_of_ranks_is_named(two: TwoHosts) -> None:
    """It opens those on which our own connections are made."""
    with two.network.firewall("gpu1", "gpu2", "1:19999", "32000:65535"):
        error = _probing_error(two, [_facts("gpu1"), _facts("gpu2")])
    assert error.code == "NODES_UNREACHABLE"
    where = f"gpu2 can't connect to gpu1 ({two.network.address('gpu1')}, port "
    assert error.message.startswith(where) and error.message.endswith(": no answer).")


@pytest.fixture(scope="module")
def three(two: TwoHosts) -> Iterator[TwoHosts]:
    """With a third host."""
    space, address = two.network.add("gpu3"), two.network.address("gpu3")
    with Sshd(netns=space, address=address, pid_namespace=True) as third:
        two.hosts["gpu3"] = third
        two.add("gpu3")
        yield two
        del two.hosts["gpu3"]


def test_hosts_of_which_two_are_parted_are_refused_before_anything_is_placed(
    three: TwoHosts,
) -> None:
    (three.folder / "parted").mkdir()
    (three.folder / "parted/train.py").write_text(PROGRAM)
    spec = three.folder / "parted.yaml"
    spec.write_text(
        f"name: parted\nframework: script\nhost: [gpu1, gpu2, gpu3]\nsteps: 60\nscript:\n"
        f"  path: {three.folder / 'parted'}\n  command: [python3, train.py, '{{nodes}}']\n"
    )
    with three.network.firewall("gpu3", "gpu2"):
        error = three.command("launch", str(spec), code=1)["error"]
    assert error["code"] == "NODES_UNREACHABLE"
    where = f"gpu2 can't connect to gpu3 ({three.network.address('gpu3')}, port "
    assert error["message"].startswith(where)
    assert "gpu3 can't" not in error["message"]  # that way is open
    for host in three.hosts.values():
        assert not list((host.home / "trainmaster/runs").glob("parted-*"))


def test_hosts_with_other_versions_are_refused(two: TwoHosts) -> None:
    error = _probing_error(two, [_facts("gpu1"), _facts("gpu2", torch="2.12.0")])
    assert error.code == "NODES_DIFFER"
    assert "PyTorch of gpu1 and gpu2 differ: 2.13.0, and 2.12.0" in error.message


def test_hosts_that_share_their_folder_for_runs_are_refused(two: TwoHosts) -> None:
    record = two.hosts["gpu1"].record("twin")
    address = f"{record.user}@{record.address}:{record.port}"
    two.command("hosts", "add", "twin", address, "--key", str(record.key), "--root", record.root)
    spec = two.spec(name="shared", host="[gpu1, twin]")
    error = two.command("launch", spec, code=1)["error"]
    assert error["code"] == "NODES_DIFFER"
    assert "gpu1 and twin have one folder for runs" in error["message"]
    runs = two.hosts["gpu1"].home / "trainmaster/runs"
    assert not [run for run in runs.iterdir() if run.name.startswith("shared-")]


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"host": "[gpu1, gpu1]"}, "INVALID_VALUE", "names gpu1 twice"),
        ({"host": "[gpu1, local]"}, "INVALID_VALUE", "names local among several hosts"),
        ({"host": "[gpu1, elsewhere]"}, "HOST_UNKNOWN", "elsewhere"),
        ({"framework": "nanogpt"}, "NOT_YET_SUPPORTED", "`host` lists 2 machines"),
    ],
)
def test_what_several_hosts_cannot_do_is_named(
    two: TwoHosts, changes: dict[str, str], code: str, words: str
) -> None:
    error = two.command("plan", two.spec(**changes), code=1)["error"]
    assert error["code"] == code
    assert words in error["message"]


def test_a_program_runs_on_both_hosts_and_all_of_it_resumes_after_a_kill(two: TwoHosts) -> None:
    program = two.folder / "program"
    program.mkdir()
    (program / "train.py").write_text(PROGRAM)
    words = "'{nodes}', '{node_rank}', '{master_addr}', '{master_port}'"
    spec = two.folder / "program.yaml"
    spec.write_text(
        f"name: program\nframework: script\nhost: [gpu1, gpu2]\nsteps: 60\nscript:\n"
        f"  path: {program}\n  command: [python3, -u, train.py, {words}]\n"
        "  resume: ['{checkpoint}']\n  checkpoints: {path: 'ckpt-*.json'}\n"
    )
    run = two.command("launch", str(spec))["run_id"]
    two.until_step(run, 25)
    (pid,) = [pid for pid in two.hosts["gpu2"].processes if b"-u" in command_line(pid)]
    kill(pid)
    ended = two.command("wait", run, "--until", "completed,end", "--timeout", str(LONGEST_S))
    assert (ended["event"], two.status(run)["attempt"]) == ("completed", 2)
    assert "ended by signal 9, first rank 1 on node gpu2" in _journal(two, run)
    expected, total = {}, 0
    for step in range(60):
        total += 3 * step
        expected[step + 1] = 1000 - total / 10
    assert two.losses(run) == expected
    # From a checkpoint: that of step 20, or of 30 where the first host got so far before it heard.
    assert min(_own_losses(two, run, 2)) in (21, 31)


@pytest.mark.skipif(ROUNDS < 2, reason=_LONG)
def test_a_killed_rank_ends_the_attempt_on_both_hosts_and_the_next_is_exact(two: TwoHosts) -> None:
    run = two.command("launch", two.spec())["run_id"]
    two.until_step(run, 25)
    kill(two.ranks("gpu2")[0])
    ended = two.command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert ended["event"] == "completed"
    status = two.status(run)
    assert (status["attempt"], status["step"]) == (2, 60)
    assert status["nodes"] == {"gpu1": "connected", "gpu2": "connected"}
    before, after = (_own_losses(two, run, attempt) for attempt in (1, 2))
    assert min(after) == 21  # from the checkpoint of step 20, which gpu2 has fetched
    again = before.keys() & after.keys()
    assert again and {step: before[step] for step in again} == {step: after[step] for step in again}
    assert "first rank 1 on node gpu2" in _journal(two, run)


@pytest.mark.skipif(ROUNDS < 2, reason=_LONG)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_faults_at_random_leave_the_losses_of_one_host(two: TwoHosts, strategy: str) -> None:
    print(f"seed {SEED}, {ROUNDS} faults")
    chosen = random.Random(SEED)
    steps = str(40 + _BETWEEN_FAULTS * ROUNDS)
    recovery = f"{{max_restarts: {4 * ROUNDS}}}"
    alone = {"host": "gpu1", "compute": f"{{threads: 1, processes: 2, strategy: {strategy}}}"}
    text = two.shared(strategy, 0.0, name="alone", steps=steps, **alone)
    reference = two.command("launch", text)["run_id"]
    two.command("wait", reference, "--until", "completed", "--timeout", str(LONGEST_S))
    run = two.command("launch", two.shared(strategy, 0.1, steps=steps, recovery=recovery))["run_id"]
    for number in range(ROUNDS):
        two.until_step(run, 22 + _BETWEEN_FAULTS * number)
        attempt = two.status(run)["attempt"]
        fault = chosen.choice(FAULTS)
        print(f"round {number}: {fault.__name__}")
        fault(two)
        wait_until(partial(_next_attempt, two, run, attempt), "the next attempt")
    two.command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert two.losses(run) == two.losses(reference)


@pytest.mark.skipif(ROUNDS < 2, reason=_LONG)
def test_a_run_continues_on_its_other_hosts_when_the_first_is_gone(three: TwoHosts) -> None:
    changes = {
        "model": "{n_layer: 1, n_head: 2, d_model: 32}",  # dropout differs by the number of ranks
        "batch": "{tokens: 768}",
        "checkpoint": "{every: 20, mirror: operator}",
        "env": pace(three.folder, 0.3),
        "steps": "80",
    }
    run = three.command("launch", three.spec(host="[gpu1, gpu2, gpu3]", **changes))["run_id"]
    three.until_step(run, 25)
    wait_until(lambda: three.status(run)["checkpoint"].get("mirrored_step") == 20, "the mirror")
    three.network.partition("gpu1")
    try:
        wait_until(lambda: three.status(run)["state"] == "lost", "the loss of the first host")
        (advised,) = re.findall("(resume [^`]*)`", three.status(run)["next_step"])
        assert advised == f"resume {run} --host gpu2 --abandon"
        three.command(*advised.split())
        three.command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
        status = three.status(run)
    finally:
        three.network.heal("gpu1")
    assert (status["state"], status["attempt"], status["host"]) == ("completed", 2, "gpu2")
    assert status["nodes"] == {"gpu2": "connected", "gpu3": "connected"}
    before, found = _own_losses(three, run, 1), three.losses(run)
    again = [step for step in before if step > 20]
    assert again and [before[step] for step in again] == pytest.approx(
        [found[step] for step in again], abs=1e-4
    )
    three.command("tick")
    wait_until(lambda: not three.members("gpu1"), "the end of what was left on the first host")
    three.command("resume", run, "--host", "gpu3", "--from", "scratch")
    three.until_step(run, 5)
    status = three.status(run)
    assert (status["host"], status.get("nodes")) == ("gpu3", None)
    three.command("stop", run)


@pytest.mark.skipif(ROUNDS < 2, reason=_LONG)
def test_a_model_that_is_shared_out_continues_without_a_lost_host(two: TwoHosts) -> None:
    changes = {
        "model": "{n_layer: 1, n_head: 2, d_model: 32}",  # dropout differs by the number of ranks
        "compute": "{threads: 1, strategy: zero3, min_nodes: 1}",
        "recovery": "{await_nodes: 5s}",
        "steps": "40",
    }
    run = two.command("launch", two.shared("zero3", 0.3, **changes))["run_id"]
    two.until_step(run, 25)
    two.network.partition("gpu2")
    try:
        ended = two.command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    finally:
        two.network.heal("gpu2")
    assert (ended["event"], two.status(run)["attempt"]) == ("completed", 3)  # 2 waits in vain
    before, after = (_own_losses(two, run, attempt) for attempt in (1, 3))
    again = before.keys() & after.keys()
    assert len(again) >= 3
    assert [after[step] for step in again] == pytest.approx([before[step] for step in again])


def _next_attempt(two: TwoHosts, run: str, attempt: int) -> bool:
    two.command("tick")  # as the keeper would: hosts that were rebooted get theirs again
    status = two.status(run)
    return status["attempt"] > attempt and status["state"] == "running"


def _kill_first_rank(two: TwoHosts) -> None:
    kill(two.ranks("gpu1")[0])


def _kill_second_rank(two: TwoHosts) -> None:
    kill(two.ranks("gpu2")[0])


def _cut_the_network(two: TwoHosts) -> None:
    """Until both have ended their parts, which has to be within a minute."""
    two.network.partition("gpu2")
    try:
        wait_until(lambda: not two.ranks("gpu2") and not two.ranks("gpu1"), "both ends", 60.0)
    finally:
        two.network.heal("gpu2")


def _reboot_the_second(two: TwoHosts) -> None:
    two.hosts["gpu2"].reboot()


def _reboot_the_first(two: TwoHosts) -> None:
    two.hosts["gpu1"].reboot()


FAULTS: list[Callable[[TwoHosts], None]] = [
    _kill_first_rank,
    _kill_second_rank,
    _cut_the_network,
    _reboot_the_second,
    _reboot_the_first,
]


def _facts(name: str, torch: str = "2.13.0") -> HostFacts:
    return HostFacts(
        hostname=name,
        root="/nowhere",
        cores=2,
        memory_total_gib=8,
        memory_available_gib=8,
        disk_free_gib=8,
        python_version="3.11.2",
        torch=TorchFacts(version=torch),
    )


def _probing_error(two: TwoHosts, facts: list[HostFacts]) -> HostError:
    """What probing both hosts is refused with; no PyTorch is started there."""
    with open_workspace(two.command.environment) as workspace:

        async def probe() -> None:
            await probe_nodes(workspace, NAMES, facts)

        with pytest.raises(HostError) as refused:
            run_async(probe)
        return refused.value


def _own_losses(two: TwoHosts, run: str, attempt: int) -> dict[int, float]:
    data = two.command.folder(run).attempt(attempt).events.read_bytes()
    events = [decode(line).document for line in complete_lines(data)[0]]
    metrics = [event for event in events if event["kind"] == "metric"]
    return {e["step"]: e["values"]["loss"] for e in metrics if "loss" in e["values"]}


def _journal(two: TwoHosts, run: str) -> str:
    return two.command.folder(run).journal.read_text()
