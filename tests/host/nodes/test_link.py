"""Two ends of a node's connection, and what a third party could do to it."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainer_runtime.host.nodes.link import Link, LinkError

SECRET, OTHER_SECRET = "5e" * 32, "1a" * 32
Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A connection: what node 0 has accepted, and what the member has opened."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        member = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    with member, accepted:
        yield accepted, member


def beside(work: Callable[[], object]) -> Callable[[], Exception | None]:
    """Run this in a thread; the result waits for it and gives its error."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            work()
        except (OSError, ValueError) as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def joined() -> Exception | None:
        thread.join(60)
        assert not thread.is_alive()
        return errors[0] if errors else None

    return joined


def linked(ends: Ends) -> tuple[Link, Link]:
    supervisor, member = Link(ends[0], is_member=False), Link(ends[1], is_member=True)
    greeted = beside(lambda: member.greet(SECRET, "gpu2", "member"))
    assert supervisor.welcome(SECRET) == ("gpu2", "member")
    assert greeted() is None
    return supervisor, member


def test_messages_and_files_arrive_as_they_were_sent(ends: Ends, tmp_path: Path) -> None:
    supervisor, member = linked(ends)
    member.send({"phase": "idle", "lines": "a\nb"})
    received = supervisor.receive(5.0)
    assert received is not None and received.text("lines") == "a\nb"
    assert supervisor.receive(0.0) is None
    content = bytes(range(256)) * 10_000
    (tmp_path / "file").write_bytes(content)
    with (tmp_path / "file").open("rb") as file:
        sent = beside(lambda: supervisor.send_file(file, len(content)))
        taken = io.BytesIO()
        member.receive_file(taken.write)
        assert sent() is None
    assert taken.getvalue() == content


def test_a_member_with_another_secret_is_not_let_in(ends: Ends) -> None:
    supervisor, member = Link(ends[0], is_member=False), Link(ends[1], is_member=True)
    beside(lambda: member.greet(OTHER_SECRET, "gpu2", "member"))
    with pytest.raises(LinkError, match="without the run's secret"):
        supervisor.welcome(SECRET)


def test_a_supervisor_with_another_secret_is_not_obeyed(ends: Ends) -> None:
    member = Link(ends[1], is_member=True)
    greeted = beside(lambda: member.greet(SECRET, "gpu2", "member"))
    ends[0].sendall(b'{"nonce": "00"}\n')
    ends[0].recv(65536)
    ends[0].sendall(json.dumps({"proof": "00" * 32}).encode() + b"\n")
    assert "another secret" in str(greeted())


def test_what_others_put_into_a_connection_is_refused(ends: Ends) -> None:
    supervisor, _ = linked(ends)
    ends[1].sendall(b"0" * 64 + b' {"phase": "ended"}\n')
    with pytest.raises(LinkError, match="not written by the other node"):
        supervisor.receive(5.0)


def test_a_message_that_is_repeated_is_refused(ends: Ends) -> None:
    supervisor, member = linked(ends)
    member.send({"phase": "idle"})
    copy = ends[0].recv(65536, socket.MSG_PEEK)
    assert supervisor.receive(5.0) is not None
    ends[1].sendall(copy)
    with pytest.raises(LinkError, match="not written by the other node"):
        supervisor.receive(5.0)


def test_a_line_without_an_end_is_refused_at_its_limit(ends: Ends) -> None:
    supervisor, _ = linked(ends)

    def flood() -> None:
        while True:
            ends[1].sendall(b"0" * (1 << 20))

    flooded = beside(flood)
    with pytest.raises(LinkError, match="too long"):
        supervisor.receive(30.0)
    supervisor.close()
    assert flooded() is not None


def test_a_file_that_changes_on_its_way_is_refused(ends: Ends) -> None:
    supervisor, member = linked(ends)
    supervisor.send({"size": 4})
    ends[0].sendall(b"data")
    supervisor.send({"sha256": "00" * 32})
    with pytest.raises(LinkError, match="changed on its way"):
        member.receive_file(lambda _data: None)


@pytest.mark.parametrize("said", [b'{"proof": "\xc3\xa9"}', b'{"proof": "\\ud800"}', b"{}"])
def test_what_is_not_a_proof_is_an_error_of_the_connection(ends: Ends, said: bytes) -> None:
    member = Link(ends[1], is_member=True)
    greeted = beside(lambda: member.greet(SECRET, "gpu2", "member"))
    ends[0].sendall(b'{"nonce": "00"}\n')
    ends[0].recv(65536)
    ends[0].sendall(said + b"\n")
    assert isinstance(greeted(), LinkError)
    supervisor, answer = Link(ends[0], is_member=False), b'{"nonce": "", "name": "", "kind": "", '
    ends[1].sendall(answer + said[1:] + b"\n")
    with pytest.raises(LinkError):
        supervisor.welcome(SECRET)
