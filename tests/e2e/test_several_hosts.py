"""One training on two hosts: real sshds in networks and process namespaces of their own, torchrun
over gloo between them.

`TRAINMASTER_FAULT_ROUNDS` sets how many faults come in turn at random (none by default: there
tests/host/nodes has them without PyTorch), `TRAINMASTER_FAULT_SEED` which, `TRAINMASTER_STRATEGIES`
under which strategies; the run's losses are then compared with one host's.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from functools import partial

import pytest
from support.runs.running_run import (
    LONGEST_S,
    command_line,
    kill,
    pace,
    wait_until,
)
from support.runs.two_hosts import PROGRAM, TwoHosts

from trainer_runtime.core.files.manifest import verify
from trainer_runtime.core.protocol.lines import complete_lines, decode

pytestmark = [pytest.mark.slow, pytest.mark.long]

ROUNDS = int(os.environ.get("TRAINMASTER_FAULT_ROUNDS", "1"))
SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))
STRATEGIES = os.environ.get("TRAINMASTER_STRATEGIES", "ddp,zero3").split(",")
_BETWEEN_FAULTS = 25
Fault = Callable[[TwoHosts], None]
_LONG = "each attempt starts PyTorch four times: TRAINMASTER_FAULT_ROUNDS sets how many"


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


@pytest.mark.smoke
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
    assert "ended by signal 9 (SIGKILL), first rank 1 on node gpu2" in _journal(two, run)
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
    turns: list[Fault] = []
    for number in range(ROUNDS):
        two.until_step(run, 22 + _BETWEEN_FAULTS * number)
        turns = turns or chosen.sample(list(FAULTS), len(FAULTS))
        attempt, fault = two.status(run)["attempt"], turns.pop()
        print(f"round {number}: {fault.__name__}")
        recorded, ranks = len(_journal(two, run)), [*two.ranks("gpu1"), *two.ranks("gpu2")]
        fault(two)
        wait_until(lambda ranks=ranks: not any(map(command_line, ranks)), "the attempt's end", 60.0)
        wait_until(partial(_next_attempt, two, run, attempt), "the next attempt")
        assert FAULTS[fault] in _journal(two, run)[recorded:]
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


# Each with what the run's journal then says of the cause.
FAULTS: dict[Fault, str] = {
    _kill_first_rank: "signal 9, first rank 0",
    _kill_second_rank: "signal 9, first rank 1 on node gpu2",
    _cut_the_network: "node gpu2",
    _reboot_the_second: "node gpu2",
    _reboot_the_first: "the machine was restarted",
}


def _own_losses(two: TwoHosts, run: str, attempt: int) -> dict[int, float]:
    data = two.command.folder(run).attempt(attempt).events.read_bytes()
    events = [decode(line).document for line in complete_lines(data)[0]]
    metrics = [event for event in events if event["kind"] == "metric"]
    return {e["step"]: e["values"]["loss"] for e in metrics if "loss" in e["values"]}


def _journal(two: TwoHosts, run: str) -> str:
    return two.command.folder(run).journal.read_text()
