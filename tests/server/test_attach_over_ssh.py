"""Attaching, over SSH, to a training on another machine."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from boxes import Sshd
from running import CommandLine
from strangers import lines, writing

from trainmaster.workspace import Workspace


def test_a_log_on_a_box_is_followed(remote: CommandLine, sshd: Sshd) -> None:
    log = sshd.home / "out" / "train.log"
    log.parent.mkdir()
    with writing(log) as stranger:
        stranger.say(lines(0, 8))
        run = remote("attach", "--host", "box", "--log", "out/train.log")["run_id"]
        assert run.startswith("out-train-")
        remote("wait", run, "--until", "step:7", "--timeout", "90")
        stranger.say(lines(8, 20))
        remote("wait", run, "--until", "step:19", "--timeout", "90")
    remote("wait", run, "--until", "end", "--timeout", "90")
    series = remote("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]
    assert series["steps"] == list(range(20))
    assert remote("logs", run, "--limit", "1")["lines"] == [lines(19, 20).strip()]
    box, mirror = remote.folder(run).root, remote.home / "mirror" / run / "p1"
    for name in ("supervisor.jsonl", "attempts/1/events.jsonl", "attempts/1/train.log"):
        assert (mirror / name).read_bytes() == (box / name).read_bytes()
    assert (mirror / "attempts/1/train.log").read_bytes() == log.read_bytes()


class TestAsAnOrdinaryUser:
    @pytest.fixture
    def sshd(self) -> Iterator[Sshd]:
        with Sshd(user="trainer") as box:
            yield box

    @pytest.fixture
    def remote(self, home: Path, sshd: Sshd, workspace: Workspace) -> CommandLine:
        workspace.control.put_host(sshd.record("box"), time.time())
        return CommandLine(home, "box", sshd.home / "trainmaster")

    def test_the_owner_is_told_how_to_let_others_read(
        self, remote: CommandLine, sshd: Sshd
    ) -> None:
        log = sshd.root / "theirs.log"
        log.write_text(lines(0, 3))
        log.chmod(0o600)
        error = remote("attach", "--host", "box", "--log", str(log), code=1)["error"]
        assert error["code"] == "LOG_NOT_READABLE"
        assert f"chmod o+r {log}" in error["fix"]
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            asked = ("attach", "--host", "box", "--pid", str(process.pid))
            error = remote(*asked, code=1)["error"]
        assert error["code"] == "NOT_OWNER"
        assert "readlink" in error["fix"]
