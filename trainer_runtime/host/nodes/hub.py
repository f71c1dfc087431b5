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
from pathlib import Path, PurePosixPath

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.files.manifest import ManifestError
from trainer_runtime.core.files.manifest import read as read_manifest
from trainer_runtime.core.files.parts import Part, arrived, arriving, is_awaited
from trainer_runtime.core.processes.nodes import NodesConfig
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.nodes.awake import AwakeClock
from trainer_runtime.host.nodes.link import Link, LinkError
from trainer_runtime.host.nodes.messages import BEAT_S, Order, Report
from trainer_runtime.host.nodes.serve_files import serve_files
from trainer_runtime.host.nodes.unauthenticated import MOST_UNAUTHENTICATED, Unauthenticated

FILES, MEMBER, PARTS = "files", "member", "parts"
_BIND_AGAIN_S = 1.0
# A connection over which a member says nothing for so long is one that its network has lost.
_LOST_AFTER_S = 60.0
_LEAVE_WITHIN_S = 3.0
_IDLE_S = 60.0


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


def receive_parts(run: RunFolder, link: Link) -> None:
    """Take what a member offers until it ends the connection.

    Files that are here from an earlier connection are not sent again. Nothing is flushed to the
    disk: sealing the checkpoint does so.

    Raises:
        OSError: it did so, is silent, or a file can't be written.
    """
    while True:
        offer = link.receive(_IDLE_S)
        if offer is None:
            raise LinkError("the member is silent")
        _take(run, link, offer)


def _take(run: RunFolder, link: Link, offer: Fields) -> None:
    part = Part.named(offer.text("part"))
    if part is None:
        raise LinkError(f"{offer.text('part')!r} is not the name of a part")
    sizes = {file.text("path"): file.integer("size") for file in offer.sections("files")}
    for path in sizes:
        _refuse_unsafe(path)
    if not is_awaited(run.checkpoints, part):
        link.send({"awaited": False, "has": _is_sealed(run, part)})
        return
    whole = arrived(run.checkpoints, part)
    if whole.is_dir():
        link.send({"awaited": False, "has": True})
        return
    _receive(link, arriving(run.checkpoints, part), whole, sizes)


def _receive(link: Link, folder: Path, whole: Path, sizes: Mapping[str, int]) -> None:
    """Raises: OSError: the part is not awaited any more, or can't be received."""
    folder.mkdir(exist_ok=True)  # not its parent, which the trainer removes
    wanted = [path for path, size in sizes.items() if not _is_here(folder / path, size)]
    link.send({"awaited": True, "wanted": wanted})
    for path in wanted:
        _receive_file(link, folder, path)
    folder.rename(whole)
    link.send({"has": True})


def _receive_file(link: Link, folder: Path, path: str) -> None:
    target = folder / path
    if not folder.is_dir():
        raise LinkError("the part is not awaited any more")
    target.parent.mkdir(parents=True, exist_ok=True)
    incomplete = target.with_name(f".incomplete-{target.name}")
    try:
        with incomplete.open("wb") as file:
            link.receive_file(file.write)
        incomplete.rename(target)
    except BaseException:
        incomplete.unlink(missing_ok=True)
        raise


def _is_here(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _is_sealed(run: RunFolder, part: Part) -> bool:
    """Whether the part is in a checkpoint already."""
    try:
        return read_manifest(run.checkpoint(part.step)).attempt == part.attempt
    except ManifestError:
        return False


def _refuse_unsafe(path: str) -> None:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        raise LinkError(f"the member names {path!r}, which is not inside its folder")
