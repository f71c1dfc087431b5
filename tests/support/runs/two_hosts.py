"""Two hosts that know nothing of one another: real sshds in networks and process namespaces of
their own, and a client that knows both."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
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
    small_spec,
)
from support.train.ranks_on_cpu import BY_GLOO

NAMES = ("gpu1", "gpu2")
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


@pytest.fixture(scope="module")
def three(two: TwoHosts) -> Iterator[TwoHosts]:
    """With a third host."""
    space, address = two.network.add("gpu3"), two.network.address("gpu3")
    with Sshd(netns=space, address=address, pid_namespace=True) as third:
        two.hosts["gpu3"] = third
        two.add("gpu3")
        yield two
        del two.hosts["gpu3"]
