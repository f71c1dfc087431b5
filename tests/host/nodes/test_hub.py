"""Node 0's port: who is let in, and which port it is."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.backends.tcp_proxy import free_port
from support.runs.running_run import wait_until

from trainer_runtime.core.processes.nodes import LAST_PORT, Node, NodesConfig
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.nodes.hub import MEMBER, Hub
from trainer_runtime.host.nodes.link import Link, connect
from trainer_runtime.host.nodes.messages import Report
from trainer_runtime.host.nodes.unauthenticated import MOST_UNAUTHENTICATED

HERE, SECRET = "127.0.0.1", "5e" * 32


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def hub_at(port: int, folder: Path, opened: ExitStack) -> Hub:
    nodes = NodesConfig(0, port, SECRET, (Node("gpu1", HERE), Node("gpu2", HERE)))
    hub = Hub(RunFolder(folder), nodes)
    opened.callback(hub.close)
    return hub


def greeted(port: int, opened: ExitStack) -> Link:
    link = connect(HERE, port, 60.0)
    opened.callback(link.close)
    link.greet(SECRET, "gpu2", MEMBER)
    return link


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HERE, port)) == 0


def test_connections_that_say_nothing_keep_no_member_out(tmp_path: Path, opened: ExitStack) -> None:
    port = free_port(HERE)
    hub = hub_at(port, tmp_path, opened)
    wait_until(lambda: is_open(port), "the port")
    member = greeted(port, opened)
    for _ in range(2 * MOST_UNAUTHENTICATED):
        opened.enter_context(socket.create_connection((HERE, port), timeout=60))
    again = greeted(port, opened)
    for link in (member, again):
        link.send(Report(None, "idle", 1.0).to_dict())
        assert link.receive(60.0) is not None
    assert hub.heard()["gpu2"].connected


def test_a_port_that_another_program_has_is_left_to_it(tmp_path: Path, opened: ExitStack) -> None:
    port = free_port(HERE)
    opened.enter_context(socket.create_server((HERE, port)))
    hub = hub_at(port, tmp_path, opened)
    second = hub.nodes.ports[1]
    wait_until(lambda: is_open(second), "another port")
    greeted(second, opened).send(Report(None, "idle", 1.0).to_dict())
    wait_until(hub.heard, "the member")
    assert hub.problem is None


def test_other_ports_are_in_the_range_of_the_first() -> None:
    nodes = (Node("gpu1", HERE),)
    for port in (20_000, LAST_PORT, 18_000):
        ports = NodesConfig(0, port, SECRET, nodes).ports
        assert ports[0] == port and len(set(ports)) == len(ports)
        assert all(20_000 <= other <= LAST_PORT for other in ports[1:])
