"""The nodes of a job that has several: found, checked, and each given a member of the run.

Before a job is started nobody knows its nodes. So what a plan tries between hosts, the job's first
node has tried here: that each reaches every other one, and that all are alike. What `srun` carries
needs no connection of ours, so that a node says what it could not reach.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from trainer_runtime.core.processes.nodes import FIRST_PORT, LAST_PORT, Node, NodesConfig
from trainer_runtime.core.processes.reaching import Peer, unreached_in_words
from trainer_runtime.core.protocol.text import shown
from trainer_runtime.host.answer import reach
from trainer_runtime.host.files.configs import config_of
from trainer_runtime.host.files.files import read_json, write_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.nodes.interfaces import own_addresses
from trainer_runtime.host.nodes.unauthenticated import MOST_UNAUTHENTICATED
from trainer_runtime.host.slurm.meet import LONGEST_SKEW_S, alike
from trainer_runtime.host.slurm.programs import SlurmError, run_program
from trainer_runtime.host.slurm.steps import FOLDER_MISSING, KeptSteps, Step, step_environment

_ENDS_S = 5.0
_LONGEST = 300
_AT_ONCE = 1 << 16
_PORTS_TRIED = 20
# A step is launched within seconds; a controller that is busy takes longer.
_CONNECTS_S, _STEP_S = 15.0, 120.0
# Each node has its own of these; what begins with a dot is a lock or a file on its way.
_OWN = frozenset({"attempts", "final", "logs", "nodes"})
_LATER = (".secrets.json", "checkpoints")


class UnfitNodesError(Exception):
    """The job's nodes can't train together; `reason`: that of the run's end."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Meeting:
    """`names` of the job's nodes, the first of which is this one; `listener`: where it listens;
    `nonce`: by which they know one another."""

    run: RunFolder
    names: Sequence[str]
    cpus: int
    listener: socket.socket
    nonce: str

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def step(self, rank: int, *words: str, own_folder: bool = False) -> Step:
        folder = self.run.node(rank).root if own_folder else self.run.root
        return Step(self.names[rank], folder, self.cpus, words)


def gather_nodes(run: RunFolder) -> KeptSteps | None:
    """Bring the job's further nodes together with this one; None where a run has a single node.

    Raises:
        UnfitNodesError: they can't train together.
        SlurmError: the job has another number of nodes, or Slurm can't be asked, or starts no step.
        OSError: the run's folder can't be written.
    """
    config = config_of(run)
    if config.compute.nodes < 2:
        return None
    names = _nodes_of_job()
    if len(names) != config.compute.nodes:
        what = f"the run takes {config.compute.nodes} nodes, and its job has {len(names)}"
        raise SlurmError("SLURM_FAILED", what, "Submit job.sh as it is.")
    limits = (read_json(run.config) or {}).get("slurm") or {}
    with _listener() as listener:
        nonce = secrets.token_hex(16)
        meeting = _Meeting(run, names, int(limits.get("cpus") or 1), listener, nonce)
        nodes, port = _meet(meeting), meeting.port
    secret, node_files = secrets.token_hex(32), {}
    for rank, node in enumerate(nodes):
        folder = make_node_folder(run, rank) if rank else run
        nodes_config = NodesConfig(rank, port, secret, tuple(nodes), shared=True)
        write_json(folder.nodes, nodes_config.to_dict())
        node_files[node.name] = folder.nodes
    steps = [
        meeting.step(rank, "session", "--node", ".", own_folder=True)
        for rank in range(1, len(names))
    ]
    return KeptSteps(steps, node_files)


def _nodes_of_job() -> list[str]:
    """Their names, with this one first."""
    listed = os.environ.get("SLURM_JOB_NODELIST", "")
    names = run_program("scontrol", "show", "hostnames", listed).split()
    own = os.environ.get("SLURMD_NODENAME", "")
    return [own, *(name for name in names if name != own)] if own in names else names


def _listener() -> socket.socket:
    for _ in range(_PORTS_TRIED):
        port = FIRST_PORT + secrets.randbelow(LAST_PORT - FIRST_PORT + 1)
        with suppress(OSError):
            return socket.create_server(("", port), backlog=MOST_UNAUTHENTICATED)
    raise OSError(f"no port from {FIRST_PORT} to {LAST_PORT} can be listened on")


def _listener_for_all() -> socket.socket:
    """At a port that the system gives out, as to a rank."""
    return socket.create_server(("", 0), backlog=MOST_UNAUTHENTICATED)


def _meet(meeting: _Meeting) -> list[Node]:
    """The nodes with their addresses, once all have connected to one another and are alike.

    Raises:
        UnfitNodesError, SlurmError: see `gather_nodes`.
    """
    names, steps = meeting.names, dict[str, AskedStep]()
    try:
        for rank, name in enumerate(names[1:], start=1):
            steps[name] = AskedStep(meeting.step(rank, "meet"))
        answers = _connected(meeting, steps)
        nodes = _addressed(meeting, answers)
        _refuse_parted(meeting, nodes, steps, [int(answers[name]["port"]) for name in names[1:]])
        return nodes
    finally:
        for step in steps.values():
            step.end()


def _connected(meeting: _Meeting, steps: Mapping[str, AskedStep]) -> dict[str, dict[str, Any]]:
    """What each further node says that it has connected to this one with, and is like.

    Raises:
        UnfitNodesError, SlurmError: see `gather_nodes`.
    """
    first, within_s = meeting.names[0], _STEP_S + _CONNECTS_S
    hear = partial(reach.hear, meeting.listener, meeting.nonce, meeting.names[1:], within_s)
    asked = {"addresses": _addresses(first), "port": meeting.port, "nonce": meeting.nonce}
    with ThreadPoolExecutor(1) as threads:
        hearing = threads.submit(hear)
        try:
            for name, step in steps.items():
                step.ask({**asked, "node": name, "within_s": _CONNECTS_S})
            answers = {name: _answer(name, step, meeting.run) for name, step in steps.items()}
            for name, answer in answers.items():
                _refuse_unreached(meeting, name, answer)
        except BaseException:
            meeting.listener.close()  # nobody is awaited any more
            raise
        _refuse_unlike(meeting, answers, hearing.result())
    return answers


def _refuse_parted(
    meeting: _Meeting, nodes: Sequence[Node], steps: Mapping[str, AskedStep], ports: Sequence[int]
) -> None:
    """Have each node connect to each other one, by ports such as their ranks are given.

    Raises:
        UnfitNodesError, SlurmError: see `gather_nodes`.
    """
    with _listener_for_all() as listener, ThreadPoolExecutor(1) as threads:
        every = (listener.getsockname()[1], *ports)
        peers = [
            Peer(node.name, node.address, port) for node, port in zip(nodes, every, strict=True)
        ]
        for peer in peers[1:]:
            steps[peer.name].ask({"others": [other.to_dict() for other in peers if other != peer]})
        name, nonce = nodes[0].name, meeting.nonce
        own = threads.submit(reach.reach_from, listener, name, peers[1:], nonce, _CONNECTS_S)
        answers = {name: _answer(name, step, meeting.run) for name, step in steps.items()}
        unreached = {name: own.result()}
    unreached |= {name: answer["unreached"] for name, answer in answers.items()}
    what = unreached_in_words(unreached)
    if what is not None:
        raise UnfitNodesError("nodes_unreachable", what)


def _addresses(name: str) -> list[str]:
    """Of this node, that which its name stands for first."""
    own = [address for address in own_addresses().values() if not address.startswith("127.")]
    with suppress(OSError):
        named = socket.gethostbyname(name)
        return [named, *(address for address in own if address != named)] if named in own else own
    return own


def _answer(name: str, step: AskedStep, run: RunFolder) -> dict[str, Any]:
    """What a node says.

    Raises:
        UnfitNodesError: it lacks the run's folder.
        SlurmError: its step says nothing.
    """
    answer = step.answer(_STEP_S)
    if answer is not None:
        return answer
    code, words = step.end()
    if code == FOLDER_MISSING:
        raise UnfitNodesError("folder_missing", f"node {name} has no {run.root}")
    raise SlurmError("SLURM_FAILED", f"the step on {name} failed: {words}", "Read logs/job.out.")


def _refuse_unreached(meeting: _Meeting, name: str, answer: Mapping[str, Any]) -> None:
    first = meeting.names[0]
    if answer.get("address") is None:
        tried = answer.get("tried") or {}
        reasons = "; ".join(f"{address}: {reason}" for address, reason in tried.items())
        what = f"{name} can't connect to {first} on port {meeting.port} ({reasons})"
        raise UnfitNodesError("nodes_unreachable", what)


def _refuse_unlike(
    meeting: _Meeting, answers: Mapping[str, Mapping[str, Any]], ahead_s: Mapping[str, float]
) -> None:
    first, own = meeting.names[0], alike()
    for name, answer in answers.items():
        for what, ours in own.items():
            theirs = answer.get(what)
            if theirs != ours:
                message = f"{what} of {first} and {name} differ: {ours}, and {theirs}"
                raise UnfitNodesError("nodes_differ", message)
        skew_s = abs(ahead_s.get(name, 0.0))
        if skew_s > LONGEST_SKEW_S:
            message = f"the clocks of {first} and {name} are {skew_s:.0f} s apart"
            raise UnfitNodesError("nodes_differ", message)


def _addressed(meeting: _Meeting, answers: Mapping[str, Mapping[str, Any]]) -> list[Node]:
    first, *others = meeting.names
    addresses = {str(answer["address"]) for answer in answers.values()}
    if len(addresses) > 1:
        what = f"{first} has no address that all others reach: {', '.join(sorted(addresses))}"
        raise UnfitNodesError("nodes_unreachable", what)
    nodes = [Node(first, addresses.pop())]
    return [*nodes, *(Node(name, str(answers[name]["own"])) for name in others)]


def make_node_folder(run: RunFolder, rank: int) -> RunFolder:
    """The folder of a node; linked are the files that are there before the run's first attempt.

    Raises:
        OSError: it can't be made.
    """
    node = run.node(rank)
    run.checkpoints.mkdir(exist_ok=True)  # a node may keep for long that a folder is missing
    if not node.root.exists():
        making = node.root.with_name(f".{rank}.{os.getpid()}")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        for name in sorted(os.listdir(run.root)):
            if name not in (*_OWN, *_LATER) and not name.startswith("."):
                making.joinpath(name).symlink_to(Path("../..", name))
        for name in _LATER:
            making.joinpath(name).symlink_to(Path("../..", name))
        making.rename(node.root)
    node.supervisor_errors.parent.mkdir(exist_ok=True)
    return node


class AskedStep:
    """A step that answers each line that it is given with a line, an object in JSON."""

    def __init__(self, step: Step) -> None:
        """Begin it.

        Raises:
            OSError: `srun` can't be started.
        """
        self._process = subprocess.Popen(
            step.command,
            env=step_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._unread = b""
        self._ended: tuple[int, str] | None = None

    def ask(self, asked: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # its end is found where its answer is read
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")

    def answer(self, within_s: float) -> dict[str, Any] | None:
        """Its next answer; None where it ends without one, or takes longer."""
        deadline = time.monotonic() + within_s
        while (line := self._line(deadline)) is not None:
            with suppress(ValueError):  # a cluster's own programs may say something, too
                answer = json.loads(line)
                if isinstance(answer, dict):
                    return answer
        return None

    def end(self) -> tuple[int, str]:
        """End the step, unless it does by itself; its exit code, and its last words."""
        if self._ended is None:
            self._ended = self._end()
        return self._ended

    def _end(self) -> tuple[int, str]:
        try:
            _, errors = self._process.communicate(timeout=_ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            _, errors = self._process.communicate()
        return self._process.returncode, shown(b" ".join(errors.split())[-_LONGEST:])

    def _line(self, deadline: float) -> bytes | None:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([descriptor], [], [], left_s)[0]:
                return None
            piece = os.read(descriptor, _AT_ONCE)
            if not piece:
                return None
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line
