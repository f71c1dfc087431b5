"""Node 0's end of its members' connections: gives each its order, and keeps what it reports.

Each connection has a thread. The supervisor sets the order and reads the reports; it never waits.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainer_runtime.core.processes.nodes import NodesConfig
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.nodes.awake import AwakeClock
from trainer_runtime.host.nodes.link import Link
from trainer_runtime.host.nodes.messages import BEAT_S, Order, Report
from trainer_runtime.host.nodes.receive_parts import receive_parts
from trainer_runtime.host.nodes.serve_files import serve_files
from trainer_runtime.host.nodes.unauthenticated import MOST_UNAUTHENTICATED, Unauthenticated

FILES, MEMBER, PARTS = "files", "member", "parts"
_BIND_AGAIN_S = 1.0
# A connection over which a member says nothing for so long is one that its network has lost.
_LOST_AFTER_S = 60.0
_LEAVE_WITHIN_S = 3.0


@dataclass(frozen=True, slots=True)
class Heard:
    """A member's newest report; `heard_s`: when it came, by the hub's clock, and `skew_s` how far
    the member's is ahead of ours; `connected`: whether its connection stands."""

    report: Report
    heard_s: float
    skew_s: float
    connected: bool = True


class Hub:
    """Listens on one of node 0's ports until it is closed."""

    def __init__(self, run: RunFolder, nodes: NodesConfig) -> None:
        """`problem`: why no member can connect, None where they can. `clock`: by which members are
        silent."""
        self._run = run
        self.nodes = nodes
        self._order: Order | None = None
        self._heard: dict[str, Heard] = {}
        self._changed = threading.Condition()
        self._closing = False
        self.problem: str | None = None
        self._unauthenticated = Unauthenticated(max(MOST_UNAUTHENTICATED, 4 * len(nodes.nodes)))
        self.clock = AwakeClock(nodes.silent_s)
        self.began_s = self.clock.now()
        self._thread = threading.Thread(target=self._listen, name="nodes", daemon=True)
        self._thread.start()

    def give(self, order: Order) -> None:
        """Give all members this order, from now on."""
        with self._changed:
            if order != self._order:
                self._order = order
                self._changed.notify_all()

    def heard(self) -> Mapping[str, Heard]:
        """What each member has reported last; none of those that never did."""
        with self._changed:
            return dict(self._heard)

    def close(self, *, leave: bool = False) -> None:
        """Stop listening; connections end within a beat. `leave`: the run has ended, and so do
        the members that can be reached."""
        if leave:
            self.give(Order(0, "leave"))
            given_s, until_s = self.clock.now(), time.monotonic() + _LEAVE_WITHIN_S
            while time.monotonic() < until_s and self._has_unheard(given_s):
                time.sleep(BEAT_S / 10)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(2 * BEAT_S)

    def _has_unheard(self, since_s: float) -> bool:
        """Whether a member has not answered, and so not been answered, since then."""
        return any(
            member.connected and member.heard_s <= since_s for member in self.heard().values()
        )

    def _listen(self) -> None:
        listener = self._listener()
        while listener is None and not self._closing:
            time.sleep(_BIND_AGAIN_S)
            self.clock.now()
            listener = self._listener()
        if listener is None:
            return
        self.problem = None
        with listener:
            listener.settimeout(BEAT_S / 2)
            while not self._closing:
                self.clock.now()
                try:
                    connection, _ = listener.accept()
                except OSError:  # nobody came
                    continue
                self._unauthenticated.add(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _listener(self) -> socket.socket | None:
        """At the first port that is free; None where other programs have all of them."""
        for port in self.nodes.ports:
            try:
                return socket.create_server(("", port), backlog=MOST_UNAUTHENTICATED)
            except OSError as error:
                self.problem = f"port {port} can't be listened on: {os.strerror(error.errno or 0)}"
        return None

    def _serve(self, connection: socket.socket) -> None:
        try:
            link = Link(connection, is_member=False)
            name, kind = link.welcome(self.nodes.secret)
            self._unauthenticated.remove(connection)
            if kind == FILES:
                serve_files(self._run, link)
            elif kind == PARTS:
                receive_parts(self._run, link)
            elif name in (node.name for node in self.nodes.nodes[1:]):
                self._converse(name, link)
        except (OSError, ValueError):
            pass  # a member comes again; anybody else has lost nothing here
        finally:
            self._unauthenticated.remove(connection)
            connection.close()

    def _converse(self, name: str, link: Link) -> None:
        """Take reports and give orders, until the connection ends."""
        latest: Report | None = None
        said_s = time.monotonic()
        try:
            while not self._closing and time.monotonic() - said_s < _LOST_AFTER_S:
                message = link.receive(BEAT_S / 2)
                if message is not None:
                    said_s = time.monotonic()
                    latest = Report.of(message)
                    self._hear(name, latest)
                    self._answer(link, latest)
        finally:
            with self._changed:
                if latest is not None and self._heard[name].report is latest:
                    self._heard[name] = replace(self._heard[name], connected=False)

    def _hear(self, name: str, report: Report) -> None:
        heard = Heard(report, self.clock.now(), report.t - time.time())
        with self._changed:
            self._heard[name] = heard

    def _answer(self, link: Link, report: Report) -> None:
        order = self._order
        if order is None:
            link.send({})
            return
        has_config = report.attempt == order.attempt
        document = (replace(order, config=None) if has_config else order).to_dict()
        link.send({**document, "kept": _steps(self._run.checkpoints)})


def _steps(checkpoints: Path) -> list[int]:
    """The steps that node 0 has a checkpoint of."""
    names = (path.name.removeprefix("step-") for path in checkpoints.glob("step-*"))
    return sorted(int(name) for name in names if name.isdigit())
