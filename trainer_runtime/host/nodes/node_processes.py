"""The processes of an attempt on several nodes: node 0's own, and its members' by their reports.

To the supervisor they are one trainer: prepared once every node is, started and ended together,
ended with the exit of the rank that failed first on any node. What ends it for another node's sake
is written into the attempt's `nodes_end.json` first, so that the next supervisor knows it too. A
node that was waited for in vain is left out of attempts until it is connected again, where
`compute.min_nodes` allows it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.policy.endings import Exit
from trainer_runtime.core.processes.fewer_nodes import Step, chosen_nodes, resized
from trainer_runtime.core.processes.rank_exits import first_failure
from trainer_runtime.core.protocol.duration import parse_duration
from trainer_runtime.core.protocol.journal_lines import LEFT
from trainer_runtime.core.protocol.rendezvous import Rendezvous
from trainer_runtime.host.files.configs import NOTHING, find_config
from trainer_runtime.host.files.files import read_fields, read_json, write_json
from trainer_runtime.host.files.given_up import give_up
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.nodes.hub import Heard, Hub
from trainer_runtime.host.nodes.interfaces import interface_of
from trainer_runtime.host.nodes.member import torch_of
from trainer_runtime.host.nodes.messages import Order, Stage
from trainer_runtime.host.nodes.node_ends import ends_on_node
from trainer_runtime.host.nodes.reports import (
    cannot_start,
    ends_of,
    has_failed,
    is_in,
    is_in_order,
    problem_of,
)
from trainer_runtime.host.processes.processes import Observation, Processes

# How long a run waits for a node before an attempt counts as failed for want of it, where its
# configuration doesn't say.
RETURNS_WITHIN_S = 900.0
# How long the other nodes have to end by themselves, so that their ranks say why.
_FOLLOWS_WITHIN_S = 10.0
# After ends in order: a rank may still be writing what it has to.
_ENDS_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Bounds in seconds: of ranks that follow a failure or an end."""

    follows_s: float = _FOLLOWS_WITHIN_S
    ends_s: float = _ENDS_WITHIN_S


class NodeProcesses:
    """`own`: those of this node. `hub`: the members' connections."""

    def __init__(
        self,
        run: RunFolder,
        own: Processes,
        hub: Hub,
        patience: Patience | None = None,
    ) -> None:
        self._run, self._own, self._hub = run, own, hub
        self._nodes, self._patience = hub.nodes, patience or Patience()
        self._awaited_s: float | None = None
        self._stage: tuple[int, Stage] | None = None
        self._failed_s: dict[int, float] = {}
        self._noted: set[tuple[int, str]] = set()

    def nodes(self, earlier: Iterable[str] = ()) -> Mapping[str, str]:
        """The state of every node: `connected`, or `lost` where it has been silent for too long;
        `left` of those `earlier` that are not among them, as of another job's.

        Before a member had the time to connect it is not named.
        """
        names = [node.name for node in self._nodes.nodes]
        states = {name: LEFT for name in earlier if name not in names} | {names[0]: "connected"}
        heard = self._hub.heard()
        for name in self._names(range(1, len(self._nodes.nodes))):
            if not self._is_silent(name, heard):
                states |= {name: "connected"} if name in heard else {}
            else:
                states[name] = "lost"
        return states

    def resize(self, config: RunConfig, sets: Mapping[str, Any]) -> dict[str, Any]:
        """What the next attempt changes for the sake of the nodes that are there, after one with
        this configuration; `sets`: its other changes."""
        least = sets.get("compute.min_nodes", config.compute.min_nodes)
        every = range(len(self._nodes.nodes))
        if least is None or not config.attempt.is_recorded:
            return {}
        heard, states = self._hub.heard(), self.nodes()
        there = {name for name in heard if states.get(name) == "connected"}
        given_up = set(every) - set(config.compute.taking_part)
        given_up |= self._awaited_in_vain(config.attempt.number)
        available = [
            number
            for number in every
            if number not in given_up or self._nodes.nodes[number].name in there
        ]
        step = Step.of(config, sets, len(every))
        chosen = chosen_nodes(step, available, len(every), int(least))
        return resized(config, sets, chosen, len(every))

    def prepare(self, attempt: int) -> None:
        self._own.prepare(attempt)

    def prepared(self, attempt: int) -> int | None:
        code = self._own.prepared(attempt)
        if code != 0:
            return code
        self._give(attempt, "prepare")
        heard = self._hub.heard()
        members = self._members_of(attempt)
        waiting = [name for name in members if not is_in(heard.get(name), attempt, "prepared")]
        for name in waiting:
            failed = heard.get(name)
            if failed is not None and is_in(failed, attempt, "failed"):
                self._say(attempt, f"The preparation of {name} ends with:\n{failed.report.tail}")
                self._note(attempt, {"node": name, "code": failed.report.code})
                return failed.report.code or 1
        missing = [
            name for name in waiting if self._is_silent(name, heard) or problem_of(heard.get(name))
        ]
        self._say_who_is_awaited(attempt, waiting, heard)
        if not missing:
            self._awaited_s = None
            if waiting:
                return None
            return 1 if self._differ(attempt, heard) else 0
        self._awaited_s = self._awaited_s or time.monotonic()
        returns_s = self._returns_s(attempt)
        if time.monotonic() - self._awaited_s > returns_s:
            self._awaited_s = None
            silent = [name for name in missing if self._is_silent(name, heard)]
            if silent:
                self._note_lost(attempt, silent[0], returns_s, awaited=silent)
            self._note_problem(attempt, missing[0], heard)
            return 1
        return None

    def _differ(self, attempt: int, heard: Mapping[str, Heard]) -> bool:
        """Whether nodes have prepared different versions of PyTorch; the run is given up then."""
        first, own = self._nodes.nodes[0].name, torch_of(self._run.attempt(attempt))
        for name in self._members_of(attempt):
            theirs = heard[name].report.torch
            if own and theirs and own != theirs:
                message = f"PyTorch of {first} and {name} differ: {own}, and {theirs}"
                self._say(attempt, f"nodes: {message}\n")
                give_up(self._run, "nodes_differ", message)
                return True
        return False

    def start(self, attempt: int) -> None:
        folder = self._run.attempt(attempt)
        if not folder.rendezvous.exists():
            own = self._nodes.own.address
            meeting = Rendezvous(
                id=f"{self._run.run_id}-{attempt}",
                address=own,
                port=_free_port(),
                node=0,
                nodes=1 + len(self._members_of(attempt)),
                interface=interface_of(own),
            )
            write_json(folder.rendezvous, meeting.to_dict())
        self._give(attempt, "run")
        self._own.start(attempt)

    def observe(self, attempt: int) -> Observation:
        own = self._own.observe(attempt)
        if own.state == "absent" or (own.end is not None and own.end.rebooted):
            return own  # no other node's part lives without this one's
        if self._stage is None or self._stage[0] != attempt:
            self._give(attempt, "run")  # another supervisor has started it
        heard = self._hub.heard()
        lost = [name for name in self._members_of(attempt) if self._is_silent(name, heard)]
        if own.end is None:
            self._end_where_others_have(attempt, heard, lost)
            return own
        if not self._have_ended(attempt, own.end, heard, lost):
            return Observation("running")
        unheard = [name for name in lost if not is_in(heard.get(name), attempt, "ended")]
        if unheard and not is_in_order(own.end):  # it took this node's ranks with it
            self._note_lost(attempt, unheard[0], self._nodes.silent_s)
        return Observation("ended", self._merged(attempt, own.end, heard))

    def terminate(self, attempt: int) -> None:
        self._own.terminate(attempt)
        self._give(attempt, "terminate")

    def kill(self, attempt: int) -> None:
        self._own.kill(attempt)
        self._give(attempt, "end")

    def _give(self, attempt: int, stage: Stage) -> None:
        """Order this, unless it was and unless the attempt is being ended."""
        if self._stage == (attempt, stage):
            return
        if stage == "run" and self._stage in ((attempt, "terminate"), (attempt, "end")):
            return
        if stage == "terminate" and self._stage == (attempt, "end"):
            return
        self._stage = (attempt, stage)
        folder = self._run.attempt(attempt)
        config = find_config(folder.config) or NOTHING
        resume = config.attempt.resume
        candidates = () if resume.mode == "scratch" else resume.candidates or ()
        self._hub.give(
            Order(
                attempt,
                stage,
                candidates[:1] if resume.mode == "step" else candidates,
                config.compute.taking_part,
                read_json(folder.rendezvous),
                config.document,
            )
        )

    def _is_silent(self, name: str, heard: Mapping[str, Heard]) -> bool:
        heard_node = heard.get(name)
        since_s = self._hub.began_s if heard_node is None else heard_node.heard_s
        return self._hub.clock.now() - since_s > self._nodes.silent_s

    def _end_where_others_have(
        self, attempt: int, heard: Mapping[str, Heard], lost: list[str]
    ) -> None:
        """Kill this node's part where another one's is lost, or has failed or been kept from its
        start for some time."""
        if lost and not self._run.attempt(attempt).nodes_end.exists():
            self._note_lost(attempt, lost[0], self._nodes.silent_s)
        members = self._members_of(attempt)
        failed = [name for name in members if has_failed(heard.get(name), attempt)]
        kept = [name for name in members if cannot_start(heard.get(name))]
        if lost or ((failed or kept) and self._since_failure(attempt) > self._patience.follows_s):
            if not failed and not lost:
                self._note_problem(attempt, kept[0], heard)
            self.kill(attempt)

    def _have_ended(
        self, attempt: int, own: Exit, heard: Mapping[str, Heard], lost: list[str]
    ) -> bool:
        """Whether no node has to be waited for any more; ends those that would never end."""
        waiting = [
            name
            for name in self._members_of(attempt)
            if name not in lost and not is_in(heard.get(name), attempt, "ended")
        ]
        if not waiting:
            return True
        patience = self._patience
        bound_s = patience.ends_s if is_in_order(own) else patience.follows_s
        waited_s = self._since_failure(attempt)
        if waited_s > bound_s:
            self._give(attempt, "end")
        return waited_s > bound_s + self._nodes.silent_s

    def _since_failure(self, attempt: int) -> float:
        """Seconds since one node's part was first seen to have ended."""
        now_s = self._hub.clock.now()
        return now_s - self._failed_s.setdefault(attempt, now_s)

    def _merged(self, attempt: int, own: Exit, heard: Mapping[str, Heard]) -> Exit:
        """The exit of the rank that failed first, on whichever node."""
        folder = self._run.attempt(attempt)
        config = find_config(folder.config) or NOTHING
        each = max(1, config.compute.processes // config.compute.nodes)
        ends = list(ends_on_node(folder, own, 0))
        members = self._members_of(attempt)
        for number, name in enumerate(members, start=1):
            heard_node = heard.get(name)
            if heard_node is not None and is_in(heard_node, attempt, "ended"):
                ends += ends_of(heard_node, number * each)
        first = first_failure(ends)
        if first is None or folder.nodes_end.exists():
            return own
        node = min(first.rank // each, len(members))
        name = [self._nodes.nodes[0].name, *members][node]
        self._note(attempt, {"node": name, "rank": first.rank})
        if node and (heard_node := heard.get(name)) is not None:
            self._say_in_log(attempt, name, heard_node.report.tail)
        return replace(own, code=first.code, signal=first.signal)

    def _names(self, numbers: Iterable[int]) -> list[str]:
        return [self._nodes.nodes[number].name for number in numbers]

    def _members_of(self, attempt: int) -> list[str]:
        """The names of the members that take part in an attempt, in the order of their ranks."""
        config = find_config(self._run.attempt(attempt).config) or NOTHING
        return self._names(number for number in config.compute.taking_part if number)

    def _returns_s(self, attempt: int) -> float:
        config = find_config(self._run.attempt(attempt).config) or NOTHING
        limit = config.recovery.await_nodes
        return RETURNS_WITHIN_S if limit is None else parse_duration(limit)

    def _awaited_in_vain(self, attempt: int) -> set[int]:
        """The nodes without which an attempt could not begin, by their numbers."""
        record = read_fields(self._run.attempt(attempt).nodes_end)
        names = () if record is None else record.texts("awaited")
        return {number for number, node in enumerate(self._nodes.nodes) if node.name in names}

    def _note_lost(
        self, attempt: int, name: str, silent_s: float, awaited: Sequence[str] = ()
    ) -> None:
        self._note(attempt, {"lost": name, "silent_s": silent_s, "awaited": list(awaited)})

    def _note_problem(self, attempt: int, name: str, heard: Mapping[str, Heard]) -> None:
        problem = problem_of(heard.get(name))
        if problem is not None:  # what the diagnosis reads of an attempt that did not start
            self._say(attempt, f"nodes: {name}: {problem}\n")
        self._note(attempt, {"node": name, "problem": problem})

    def _note(self, attempt: int, fields: Mapping[str, object]) -> None:
        folder = self._run.attempt(attempt)
        if not folder.nodes_end.exists():
            write_json(folder.nodes_end, {"v": 1, **fields})

    def _say_who_is_awaited(
        self, attempt: int, waiting: list[str], heard: Mapping[str, Heard]
    ) -> None:
        if self._hub.problem is not None:
            self._say(attempt, f"nodes: {self._hub.problem}\n")
        for name in waiting:
            problem = problem_of(heard.get(name))
            if self._is_silent(name, heard):
                self._say(attempt, f"nodes: waiting for {name}, which is not connected\n")
            elif problem is not None:
                self._say(attempt, f"nodes: {name}: {problem}\n")
            else:
                self._say(attempt, f"nodes: preparing {name}\n")

    def _say(self, attempt: int, text: str) -> None:
        """Into the preparation's log, each text once; the preparation itself has ended."""
        if (attempt, text) not in self._noted:
            self._noted.add((attempt, text))
            with self._run.attempt(attempt).setup_log.open("a") as log:
                log.write(text)

    def _say_in_log(self, attempt: int, name: str, tail: str) -> None:
        """Append what another node printed last to the log that is read and diagnosed; of this
        node nobody writes to it any more."""
        lines = [line for line in tail.splitlines()[-200:] if line.strip()]
        if not lines or (attempt, "log") in self._noted:
            return
        self._noted.add((attempt, "log"))
        text = "\n".join([f"The log of {name} ends with:", *lines, ""])
        path = self._run.attempt(attempt).train_log
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as log:
            log.write(text.encode())


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as any_socket:
        any_socket.bind(("", 0))
        return int(any_socket.getsockname()[1])
