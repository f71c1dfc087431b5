"""An instance without a client: real timers, supervisors and trainers, and a provider to call."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.core.journal_records import lines
from support.runs.running_run import (
    command_line,
    is_supervisor,
    kill,
    kill_processes,
    own_run_id,
    wait_until,
)

from trainer_runtime.core.files.durable import is_locked
from trainer_runtime.core.lease.lease import LEASE, Lease, OwnEnd
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.lines import complete_lines, decode
from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.lease.start_timer import LOG

KEY = "box-scoped-key-93cf"
# Reports that it handles signals, then trains until it is asked to save.
TRAINER = """\
import pathlib, signal, sys
def save(*_):
    pathlib.Path("saved").touch()
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
pathlib.Path("trains").touch()
while True:
    signal.pause()
"""
RUN = own_run_id("small")
CONFIG: dict[str, Any] = {
    "run_id": RUN,
    "name": "small",
    "framework": "nanogpt",
    "steps": 100,
    "checkpoint": {"metric": "val_loss"},
    "recovery": {"max_restarts": 3},
    "limits": {"max_runtime_s": None},
}
ATTEMPT = {"attempt": 1, "generation": 1, "why": "launch", "mode": "latest"}
BEGUN = (
    ("attempt_starting", {**ATTEMPT, "candidates": [], "set": {}, "skip": None}),
    ("prepared", {"attempt": 1}),
)


@dataclass
class Provider:
    """The provider that ends the instance: the requests it got, and its answers in turn."""

    statuses: tuple[int, ...]
    port: int = 0
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)

    def own_end(self) -> OwnEnd:
        url = f"http://127.0.0.1:{self.port}/v0/instances/7/"
        return OwnEnd(method="DELETE", url=url, key_variable="BOX_KEY")


@contextmanager
def provider(*statuses: int) -> Iterator[Provider]:
    found = Provider(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_DELETE(self) -> None:
            status = found.statuses[min(len(found.asked), len(found.statuses) - 1)]
            found.asked.append(("DELETE", self.path, self.headers["Authorization"]))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class Machine:
    """An instance with a run that trains; everything on it is ended with the test."""

    root: Path

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.root / "runs" / RUN)

    def lay_down(self, seconds: float, **fields: Any) -> Lease:
        given = Lease("tm-0a1b2c-abc234", "vast", "7", time.time() + seconds, **fields)
        (self.root / LEASE).write_text(json.dumps(given.to_dict()))
        return given

    def train(self) -> None:
        """A trainer that is running, by its supervisor's journal."""
        folder = self.run.attempt(1)
        folder.root.mkdir(parents=True)
        (self.run.root / "train.py").write_text(TRAINER)
        for path in (self.run.config, folder.config):
            path.write_text(json.dumps(CONFIG))
        desired = {"state": "running", "generation": 1, "grace_s": 30.0}
        self.run.desired.write_text(json.dumps(desired))
        self.run.journal.write_bytes(b"".join(lines(BEGUN, first_t=time.time())))
        self.run.supervisor_errors.parent.mkdir()
        self.start("hold", str(self.run.root), "1")
        wait_until((self.run.root / "trains").exists, "the trainer")

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "trainer_runtime", *arguments],
            env={**os.environ, "BOX_KEY": KEY},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def ask(self, *arguments: str) -> dict[str, Any]:
        output, _ = self.start(*arguments).communicate(timeout=60)
        answer: dict[str, Any] = json.loads(output)
        return answer

    def record(self) -> Record:
        found = Record()
        for line in complete_lines(self.run.journal.read_bytes())[0]:
            found.apply(decode(line))
        return found

    def timers(self) -> list[int]:
        found = []
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            words = command_line(pid)
            if b"lease" in words and str(self.root).encode() in words and b"--start" not in words:
                found.append(pid)
        return found

    def supervisors(self) -> list[int]:
        pids = map(int, filter(str.isdigit, os.listdir("/proc")))
        return [pid for pid in pids if is_supervisor(pid, self.run)]

    def is_timed(self) -> bool:
        return bool(self.ask("lease", str(self.root), "--report")["runs"])

    @property
    def log(self) -> str:
        return (self.root / LOG).read_text()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    try:
        yield machine
    finally:
        kill_processes(tmp_path)  # supervisors first: they would start another timer
        for pid in machine.timers():
            kill(pid)


@pytest.mark.slow
def test_a_lease_ends_a_box_though_everybody_else_is_gone(machine: Machine) -> None:
    machine.train()
    machine.ask("start", str(machine.run.root))
    for pid in wait_until(machine.supervisors, "the supervisor"):
        kill(pid)
    wait_until(lambda: not is_locked(machine.run.supervisor_lock), "its lock is free")
    with provider(500, 204) as cloud:
        given = machine.lay_down(3600.0, own_end=cloud.own_end(), stop_before_s=3600.0)
        answer = machine.ask("lease", str(machine.root), "--start")
        assert (answer["runs"], answer["lacks"], answer["end_t"]) == (True, None, given.end_t)
        wait_until(lambda: machine.record().closed, "the run's stop")
        assert cloud.asked == []
        machine.lay_down(0.0, own_end=cloud.own_end())
        wait_until(lambda: len(cloud.asked) >= 2, "the instance to end itself")
    assert cloud.asked[0] == ("DELETE", "/v0/instances/7/", f"Bearer {KEY}")
    record = machine.record()
    assert (record.state.value, record.reason) == ("stopped", "lease_over")
    assert (record.attempts[0].code, record.attempts[0].detail) == (75, "saved and ended")
    assert (machine.run.root / "saved").exists()
    wait_until(lambda: "answered 204" in machine.log, "the log")
    assert "answered 500" in machine.log and "started its supervisor" in machine.log
    assert KEY not in machine.log
    words_of_all = [words for pid in machine.timers() for words in command_line(pid)]
    assert not any(KEY.encode() in words for words in words_of_all)


@pytest.mark.slow
def test_a_timer_that_was_killed_is_started_again_by_a_supervisor(machine: Machine) -> None:
    machine.lay_down(3600.0)
    assert machine.ask("lease", str(machine.root), "--start")["started"]
    wait_until(machine.is_timed, "it holds the lock")
    assert not machine.ask("lease", str(machine.root), "--start")["started"]
    (first,) = machine.timers()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not machine.is_timed(), "its lock is free")
    machine.train()
    machine.ask("start", str(machine.run.root))  # a supervisor checks for it
    (second,) = wait_until(machine.timers, "another timer")
    assert second != first
    wait_until(machine.is_timed, "it holds the lock")
    assert machine.start("lease", str(machine.root)).wait(timeout=60) == 0  # there is only one


def test_without_a_key_of_its_own_a_box_lets_nothing_train_on(machine: Machine) -> None:
    machine.train()
    machine.lay_down(0.0, stop_before_s=0.0)
    machine.ask("lease", str(machine.root), "--start")
    wait_until(lambda: read_json(machine.run.attempt(1).exit), "the trainer's end")
    wait_until(lambda: "can't end itself" in machine.log, "the log")
    assert "killed what was left of its training" in machine.log
