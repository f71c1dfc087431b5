"""Nodes that meet at a port to which anybody may connect."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from support.backends.tcp_proxy import free_port

from trainer_runtime.host.answer import reach
from trainer_runtime.host.nodes.unauthenticated import MOST_UNAUTHENTICATED

HERE, NONCE = "127.0.0.1", "5e" * 16
NOT_OURS = [
    b'{"nonce": "\xc3\xa9"}\n',
    b'{"nonce": "\\ud800"}\n',
    b'{"nonce": ' + b"[" * 4000 + b"\n",
    b'{"nonce": 1}\n',
    b"[]\n",
    b"\xff\xfe\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"x" * 10_000,
    b"",
]


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def listening(port: int, heard: dict[str, Any], within_s: float = 60.0) -> threading.Thread:
    thread = threading.Thread(
        target=lambda: heard.update(reach.listen(port, NONCE, ["gpu2"], within_s)), daemon=True
    )
    thread.start()
    return thread


def open_connection(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection((HERE, port), timeout=60)
        except ConnectionRefusedError:
            continue  # it does not listen yet


def test_a_node_is_heard_among_other_programs(opened: ExitStack) -> None:
    port, heard = free_port(HERE), dict[str, Any]()
    thread = listening(port, heard)
    for said in NOT_OURS:
        other = opened.enter_context(open_connection(port))
        other.sendall(said)
        if not said:
            other.shutdown(socket.SHUT_WR)
    for _ in range(2 * MOST_UNAUTHENTICATED):  # they say nothing, and stay
        opened.enter_context(open_connection(port))
    met = reach.connect("gpu2", [HERE], port, NONCE, 60.0)
    thread.join(60)
    assert (met["address"], met["own"]) == (HERE, HERE)
    assert set(heard["ahead_s"]) == {"gpu2"} and abs(heard["ahead_s"]["gpu2"]) < 60


def test_a_program_that_sends_a_little_at_a_time_keeps_nobody_waiting(
    opened: ExitStack,
) -> None:
    port, heard, done = free_port(HERE), dict[str, Any](), threading.Event()
    thread = listening(port, heard, within_s=0.5)
    other = opened.enter_context(open_connection(port))

    def drip() -> None:
        while not done.wait(0.05):
            try:
                other.sendall(b"x")
            except OSError:
                return

    dripping = threading.Thread(target=drip, daemon=True)
    dripping.start()
    thread.join(60)
    done.set()
    dripping.join(60)
    assert heard == {"problem": None, "ahead_s": {}}


def test_a_port_of_another_program_is_named(opened: ExitStack) -> None:
    taken = opened.enter_context(socket.create_server((HERE, free_port(HERE))))
    port = taken.getsockname()[1]
    problem = reach.listen(port, NONCE, ["gpu2"], 60.0)["problem"]
    assert problem == f"port {port} can't be listened on: Address already in use"


@pytest.mark.parametrize("said", NOT_OURS)
def test_a_program_that_answers_for_the_first_node_is_not_taken_for_it(
    said: bytes, opened: ExitStack
) -> None:
    other = opened.enter_context(socket.create_server((HERE, free_port(HERE))))

    def answer() -> None:
        connection, _ = other.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(said)

    answering = threading.Thread(target=answer, daemon=True)
    answering.start()
    met = reach.connect("gpu2", [HERE], other.getsockname()[1], NONCE, 0.1)
    answering.join(60)
    assert met["address"] is None and set(met["tried"]) == {HERE}
