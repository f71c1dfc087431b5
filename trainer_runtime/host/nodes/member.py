"""A member: has another node's supervisor's orders carried out on this one, and reports.

It decides nothing but one thing: where the first node's machine is silent for too long, it kills
its part of the attempt. A machine that refuses the connection is not silent: its supervisor was
killed, the ranks still reach one another, and the next supervisor finds the attempt running.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.files.regular import open_regular
from trainer_runtime.core.frameworks import launching
from trainer_runtime.core.frameworks.framework import WRITING
from trainer_runtime.core.processes.nodes import NodesConfig, moved
from trainer_runtime.core.protocol.rendezvous import Rendezvous
from trainer_runtime.host.files.configs import NOTHING, config_of, find_config
from trainer_runtime.host.files.files import read_fields, read_json, write_json
from trainer_runtime.host.files.layout import AttemptFolder, RunFolder
from trainer_runtime.host.nodes.awake import AwakeClock
from trainer_runtime.host.nodes.fetch_files import fetch_checkpoint, fetch_entry
from trainer_runtime.host.nodes.hub import FILES, MEMBER, PARTS
from trainer_runtime.host.nodes.interfaces import interface_of
from trainer_runtime.host.nodes.link import Link, LinkError, connect
from trainer_runtime.host.nodes.messages import BEAT_S, Order, Report
from trainer_runtime.host.nodes.node_ends import ends_on_node
from trainer_runtime.host.nodes.send_parts import PartSender
from trainer_runtime.host.nodes.serve_files import cache_entries
from trainer_runtime.host.processes.processes import BoxProcesses, Processes

_TAIL_BYTES = 16_384
_CONNECTS_WITHIN_S = 5.0
_LONGEST_PAUSE_S = 5.0
_GIVE_UP_S = 24 * 3600.0
# A run that has ended may be resumed at once, by a client that finds its members alive.
_LINGERS_S = 10.0
_RETRY = 1
_LONGEST_PROBLEM = 500


def read_nodes(run: RunFolder) -> NodesConfig | None:
    """What this node was given of the others; None where a run has a single host.

    Raises:
        ValueError: it is not what a client writes.
    """
    fields = read_fields(run.nodes)
    return None if fields is None else NodesConfig.of(fields)


def obey(run: RunFolder, nodes: NodesConfig) -> int:
    """Be this node's member to the end of the run; the exit code."""
    member = Member(run, nodes, BoxProcesses(run.root))
    try:
        return member.run()
    finally:
        member.close()


class Member:
    """This node's part of a run. `tick` takes what came, acts, and reports."""

    def __init__(self, run: RunFolder, nodes: NodesConfig, processes: Processes) -> None:
        self._run, self._nodes, self._processes = run, nodes, processes
        self._link: Link | None = None
        self._order: Order | None = None
        self._fetch: _Fetch | None = None
        self._parts = PartSender(run, lambda: self._connected(PARTS))
        self._clock = AwakeClock(nodes.silent_s)
        self._heard_s, self._ordered_s = self._clock.now(), time.monotonic()
        self._connect_s = 0.0
        self._pause_s = BEAT_S
        self._left_s: float | None = None
        self._own_address: str | None = None
        self._problem: str | None = None
        self._port = nodes.port

    def run(self) -> int:
        """Obey to the end of the run; the exit code."""
        with self._clock.ticking():
            while self._run.config.exists():
                if self.tick():
                    return 0
                if time.monotonic() - self._ordered_s > _GIVE_UP_S:
                    break  # a client that still wants the run starts another one
        self._end_attempt()
        return 0

    def tick(self) -> bool:
        """One exchange with node 0, and what follows from it; True once the run has ended."""
        try:
            message = self._exchange()
        except OSError as error:
            self._lost(error)
            message = None
        if message is not None:
            self._heard_s, self._ordered_s = self._clock.now(), time.monotonic()
            self._follow(message)
        elif self._clock.now() - self._heard_s > self._nodes.silent_s:
            self._end_attempt()
        return self._left_s is not None and time.monotonic() - self._left_s > _LINGERS_S

    def _follow(self, message: Fields) -> None:
        """Obey. What this machine refuses, as a full disk, is reported, and is tried again with the
        next answer: the connection stands."""
        try:
            self._obey(Order.of(message) if message.values else None)
            if message.values:
                self._parts.poll(message.integers("kept"))
        except OSError as error:
            self._note_problem(error)
        else:
            self._problem = None

    def _note_problem(self, error: OSError) -> None:
        words = _in_words(error)
        if words != self._problem:
            self._problem = words
            _say(words)

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _exchange(self) -> Fields | None:
        """Report, and hear what is wanted; at most a beat."""
        begun_s = time.monotonic()
        if self._link is None:
            if begun_s < self._connect_s:
                time.sleep(min(BEAT_S, self._connect_s - begun_s))
                return None
            self._link = self._connected(MEMBER)
            self._pause_s = BEAT_S
        self._link.send(self._reported().to_dict())
        message = self._link.receive(2 * BEAT_S)
        time.sleep(max(0.0, self._beat_s - (time.monotonic() - begun_s)))
        return message

    @property
    def _beat_s(self) -> float:
        """Quicker while node 0 waits for what comes next."""
        is_steady = self._order is None or self._order.stage == "run"
        return BEAT_S if is_steady else BEAT_S / 5

    def _connected(self, kind: str) -> Link:
        """By the port that has worked last, else by the others in turn.

        Raises:
            OSError: node 0 can't be reached; `ConnectionRefusedError` where its machine answers,
                but nobody listens there.
        """
        failure: OSError | None = None
        for port in dict.fromkeys((self._port, *self._nodes.ports)):
            try:
                link = self._greeted(port, kind)
            except (ConnectionRefusedError, LinkError) as error:  # nobody, or another program
                if failure is None or isinstance(error, LinkError):
                    failure = error
                continue
            self._port = port
            return link
        raise failure or OSError("no port is known")

    def _greeted(self, port: int, kind: str) -> Link:
        link = connect(self._nodes.nodes[0].address, port, _CONNECTS_WITHIN_S)
        try:
            link.greet(self._nodes.secret, self._nodes.own.name, kind)
        except BaseException:
            link.close()
            raise
        self._own_address = link.own_address
        return link

    def _lost(self, error: OSError) -> None:
        """No connection: how soon to try again, and whether node 0's machine answers at all."""
        self.close()
        if isinstance(error, ConnectionRefusedError):
            self._heard_s = self._clock.now()
        self._connect_s = time.monotonic() + self._pause_s
        self._pause_s = min(_LONGEST_PAUSE_S, 1.5 * self._pause_s)

    def _obey(self, order: Order | None) -> None:
        if order is None:
            return
        if order.stage == "leave":
            self._end_attempt()
            self._left_s = self._left_s or time.monotonic()
            if not self._nodes.shared:
                self._run.secrets.unlink(missing_ok=True)
            return
        self._left_s = None
        if self._nodes.rank not in order.taking_part:
            self._end_attempt()
            self._order = None
            return
        earlier = self._order
        is_new = earlier is None or earlier.attempt != order.attempt
        if is_new and not self._begin(order):
            return
        self._order = order
        if order.stage == "end":
            self._end_attempt()
        elif order.stage == "terminate":
            self._processes.terminate(order.attempt)
        elif not self._attempt.process.exists() and self._is_prepared(order):
            self._start(order)

    def _begin(self, order: Order) -> bool:
        """Take up an attempt, once no other one lives here; False while its config lacks."""
        for path in (self._run.root / "attempts").glob("*"):
            number = int(path.name) if path.name.isdigit() else order.attempt
            if number != order.attempt and not self._run.attempt(number).exit.exists():
                self._processes.kill(number)
        folder = self._run.attempt(order.attempt)
        if order.config is not None:
            self._write_config(folder, order.config)
        self._fetch = None
        return folder.config.exists()

    def _write_config(self, folder: AttemptFolder, sent: Mapping[str, Any]) -> None:
        own = config_of(self._run).data.cache_dir
        theirs = RunConfig.parse(sent).data.cache_dir
        config = moved(sent, theirs, own)
        folder.root.mkdir(parents=True, exist_ok=True)
        for name, text in launching.files(RunConfig.parse(config)).items():
            path = folder.root / name
            path.parent.mkdir(exist_ok=True)
            write_atomic(path, text.encode())
        write_json(folder.config, config)

    def _is_prepared(self, order: Order) -> bool:
        """Bring the preparation one step on; True once all of it is done."""
        if self._fetch is None:
            self._fetch = _Fetch(self, order)
            self._fetch.start()
        if self._fetch.problem is not None or not self._fetch.is_done:
            return False
        self._processes.prepare(order.attempt)
        return self._processes.prepared(order.attempt) == 0

    def _start(self, order: Order) -> None:
        if order.stage != "run" or order.rendezvous is None:
            return
        interface = None if self._own_address is None else interface_of(self._own_address)
        node = order.taking_part.index(self._nodes.rank)
        own = {"node": node, "interface": interface}
        rendezvous = Rendezvous.of(Fields({**order.rendezvous, **own}, "rendezvous"))
        write_json(self._attempt.rendezvous, rendezvous.to_dict())
        self._processes.start(order.attempt)

    def _end_attempt(self) -> None:
        if self._order is not None:
            self._processes.kill(self._order.attempt)

    @property
    def _attempt(self) -> AttemptFolder:
        assert self._order is not None
        return self._run.attempt(self._order.attempt)

    def _reported(self) -> Report:
        """The report, with what keeps this node from doing what is wanted."""
        try:
            report = self._report()
        except OSError as error:  # of this machine, not of the connection
            self._note_problem(error)
            number = None if self._order is None else self._order.attempt
            report = Report(number, "idle", time.time())
        return replace(report, problem=report.problem or self._problem)

    def _report(self) -> Report:
        order, now = self._order, time.time()
        if order is None:
            return Report(None, "idle", now)
        number = order.attempt
        observed = self._processes.observe(number)
        if observed.end is not None:
            end = observed.end
            ends = ends_on_node(self._attempt, end, self._first_rank(order))
            log = self._attempt.train_log if end.prepared else self._run.supervisor_errors
            tail = _tail(log)  # of a trainer that could not be started, hold says why
            return Report(number, "ended", now, end.code, end.signal, ends, tail)
        if observed.state == "running":
            return Report(number, "running", now)
        return self._report_preparation(number, now)

    def _first_rank(self, order: Order) -> int:
        """The number of this node's first rank."""
        config = find_config(self._attempt.config) or NOTHING
        each = config.compute.processes // config.compute.nodes
        return order.taking_part.index(self._nodes.rank) * each

    def _report_preparation(self, number: int, now: float) -> Report:
        if self._fetch is None or not self._fetch.is_done:
            problem = None if self._fetch is None else self._fetch.problem
            return Report(number, "fetching", now, problem=problem)
        code = self._processes.prepared(number)
        if code is None:
            return Report(number, "preparing", now)
        if code == 0:
            return Report(number, "prepared", now, torch=torch_of(self._attempt))
        tail = _tail(self._attempt.setup_log)
        return Report(number, "failed", now, code if code > 0 else _RETRY, tail=tail)

    def awaits(self, fetch: _Fetch) -> bool:
        """Whether what is fetched is still wanted; False once another attempt began."""
        return self._fetch is fetch

    def fetch(self, order: Order) -> None:
        """Fetch what the attempt needs of node 0.

        Raises:
            OSError: it can't be fetched just now.
        """
        if self._nodes.shared:
            return
        attempt = self._run.attempt(order.attempt)
        shutil.rmtree(self._run.root / WRITING, ignore_errors=True)  # what a killed rank left
        config = RunConfig.parse(attempt.config.read_bytes(), str(attempt.config))
        with attempt.setup_log.open("a") as log:

            def say(line: str) -> None:
                print(line, file=log, flush=True)

            link = self._connected(FILES)
            try:
                for entry in cache_entries(config):
                    fetch_entry(link, Path(config.data.cache_dir), entry, say)
                fetch_checkpoint(self._run, link, order.candidates, say)
            finally:
                link.close()


class _Fetch:
    """Fetching in a thread of its own, since reports continue meanwhile; tried until it is done."""

    def __init__(self, member: Member, order: Order) -> None:
        self._member, self._order = member, order
        self.problem: str | None = None
        self.is_done = False

    def start(self) -> None:
        threading.Thread(target=self._run, name="fetch", daemon=True).start()

    def _run(self) -> None:
        while not self.is_done and self._member.awaits(self):
            try:
                self._member.fetch(self._order)
                self.problem, self.is_done = None, True
            except (OSError, ValueError) as error:
                self.problem = _in_words(error)
                _say(self.problem)
                time.sleep(BEAT_S)


def torch_of(attempt: AttemptFolder) -> str | None:
    """The version of PyTorch that was prepared for an attempt, where one was chosen."""
    version = (read_json(attempt.environment) or {}).get("torch")
    return version if isinstance(version, str) else None


def _in_words(error: Exception) -> str:
    return str(error)[:_LONGEST_PROBLEM] or type(error).__name__


def _say(words: str) -> None:
    with suppress(OSError):  # that may be a file on the full disk
        print(f"member: {words}", file=sys.stderr, flush=True)


def _tail(path: Path) -> str:
    try:
        with open_regular(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""
