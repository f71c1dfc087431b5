"""Nodes that have prepared different versions of PyTorch."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.backends.tcp_proxy import free_port
from support.runs.running_run import wait_until

from trainer_runtime.core.processes.nodes import Node, NodesConfig
from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.nodes.hub import MEMBER, Hub
from trainer_runtime.host.nodes.link import connect
from trainer_runtime.host.nodes.messages import Report
from trainer_runtime.host.nodes.node_processes import NodeProcesses
from trainer_runtime.host.processes.processes import BoxProcesses

ADDRESS, SECRET = "127.0.0.1", "5e" * 32


class Prepared(BoxProcesses):
    """Node 0's processes, of which the preparation has ended well."""

    def prepared(self, attempt: int) -> int | None:
        return 0


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    run = RunFolder(tmp_path / "runs/r")
    run.attempt(1).root.mkdir(parents=True)
    config = {"compute": {"nodes": 2, "processes": 2}, "attempt": {"number": 1}}
    run.attempt(1).config.write_text(json.dumps(config))
    run.attempt(1).environment.write_text(json.dumps({"python": "p", "torch": "2.13.0"}))
    run.desired.write_text(json.dumps({"state": "running", "generation": 4}))
    nodes = (Node("gpu1", ADDRESS), Node("gpu2", ADDRESS))
    made = Hub(run, NodesConfig(0, free_port(ADDRESS), SECRET, nodes))
    yield made
    made.close()


@pytest.mark.parametrize(("torch", "code"), [("2.13.0", 0), (None, 0), ("2.12.0", 1)])
def test_an_attempt_on_other_versions_is_given_up(
    hub: Hub, tmp_path: Path, torch: str | None, code: int
) -> None:
    run = RunFolder(tmp_path / "runs/r")
    threading.Thread(target=_report, args=(hub, torch), daemon=True).start()
    processes = NodeProcesses(run, Prepared(run.root), hub)
    wait_until(lambda: processes.prepared(1) is not None, "a report")
    assert processes.prepared(1) == code
    given_up = read_json(run.given_up)
    if code == 0:
        assert given_up is None
    else:
        assert given_up == {
            "generation": 4,
            "reason": "nodes_differ",
            "message": "PyTorch of gpu1 and gpu2 differ: 2.13.0, and 2.12.0",
        }


def _report(hub: Hub, torch: str | None) -> None:
    """As a member does that has prepared this version."""
    link = None
    while link is None:
        try:
            link = connect(ADDRESS, hub.nodes.port, 5.0)
        except OSError:
            continue
    link.greet(SECRET, "gpu2", MEMBER)
    with suppress(OSError):  # the hub is closed
        while True:
            link.send(Report(1, "prepared", time.time(), torch=torch).to_dict())
            link.receive(5.0)
