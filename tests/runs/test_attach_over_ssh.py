"""Attaching, over SSH, to a training on another machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.backends.ssh_hosts import Sshd
from support.host.foreign_trainings import lines, listening, writing
from support.runs.running_run import CommandLine, wait_until
from support.session.tiers import at_length

from trainer_runtime.core.files.durable import is_locked
from trainmaster.sync.workspace import Workspace

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_a_log_on_a_box_is_followed(remote: CommandLine, sshd: Sshd) -> None:
    log = sshd.home / "out" / "train.log"
    log.parent.mkdir()
    with writing(log) as training:
        training.say(lines(0, 8))
        run = remote("attach", "--host", "box", "--log", "out/train.log")["run_id"]
        assert run.startswith("out-train-")
        remote("wait", run, "--until", "step:7", "--timeout", "240")
        training.say(lines(8, 20))
        remote("wait", run, "--until", "step:19", "--timeout", "240")
    remote("wait", run, "--until", "end", "--timeout", "240")
    series = remote("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]
    assert series["steps"] == list(range(20))
    assert remote("logs", run, "--limit", "1")["lines"] == [lines(19, 20).strip()]
    # A supervisor on its way out still writes after the end that was waited for.
    lock = remote.folder(run).supervisor_lock
    wait_until(lambda: not is_locked(lock), "the supervisor's end")
    remote("status", run)
    box, mirror = remote.folder(run).root, remote.home / "mirror" / run / "p1"
    for name in ("supervisor.jsonl", "attempts/1/events.jsonl", "attempts/1/train.log"):
        assert (mirror / name).read_bytes() == (box / name).read_bytes()
    assert (mirror / "attempts/1/train.log").read_bytes() == log.read_bytes()


@pytest.fixture
def tmux(sshd: Sshd) -> Iterator[Callable[..., str]]:
    """tmux of the host's user, as an SSH session finds it."""
    folder = sshd.root / "windows" / "tmux"
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "TMUX_TMPDIR": str(folder)}

    def ask(*arguments: str) -> str:
        command = ["tmux", "-f", "/dev/null", *arguments]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        return done.stdout.decode()

    yield ask
    subprocess.run(["tmux", "kill-server"], env=environment, capture_output=True, check=False)


@pytest.mark.long  # test_attach reads one here
@pytest.mark.parametrize("by", ["tmux", *at_length("pid")])
def test_a_pane_on_a_box_is_read_with_its_history(
    remote: CommandLine, sshd: Sshd, tmux: Callable[..., str], by: str
) -> None:
    fifo = sshd.root / "fifo"
    with listening(fifo) as training:
        tmux("new-session", "-d", "-s", "train", "-x", "60", "-y", "6", f"exec cat {fifo}")
        training.say(lines(0, 30))
        shown = ("capture-pane", "-p", "-t", "train")
        wait_until(lambda: "iter 29:" in tmux(*shown), "the pane")
        pid = tmux("display-message", "-p", "-t", "train", "#{pane_pid}").strip()
        target = {"tmux": "train", "pid": pid}[by]
        run = remote("attach", "--host", "box", f"--{by}", target)["run_id"]
        remote("wait", run, "--until", "step:29", "--timeout", "240")
        training.say(lines(30, 40))
        remote("wait", run, "--until", "step:39", "--timeout", "240")
        series = remote("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]
        assert series["steps"] == list(range(40))
        remote("clean", run, "--yes")
        assert tmux("display-message", "-p", "-t", "train", "#{pane_pipe}") == "0\n"
        training.say(lines(40, 41))
        wait_until(lambda: "iter 40:" in tmux(*shown), "the training that continues")


def test_a_process_on_a_box_leads_to_its_log_and_its_end_ends_the_run(
    remote: CommandLine, sshd: Sshd
) -> None:
    with writing(sshd.root / "theirs.log") as training:
        training.say(lines(0, 4))
        run = remote("attach", "--host", "box", "--pid", str(training.pid))["run_id"]
        remote("wait", run, "--until", "step:3", "--timeout", "240")
    assert remote("wait", run, "--until", "end", "--timeout", "240")["state"] == "stopped"
    assert "its process ended" in remote("status", run)["untrusted_detail"]


class TestAsAnOrdinaryUser:
    @pytest.fixture
    def sshd(self) -> Iterator[Sshd]:
        with Sshd(user="trainer") as box:
            yield box

    @pytest.fixture
    def remote(self, home: Path, sshd: Sshd, workspace: Workspace) -> CommandLine:
        workspace.control.put_host(sshd.record("box"), time.time())
        return CommandLine(home, "box", sshd.home / "trainmaster")

    def test_the_owner_learns_how_to_let_others_read(self, remote: CommandLine, sshd: Sshd) -> None:
        log = sshd.root / "theirs.log"
        log.write_text(lines(0, 3))
        log.chmod(0o600)
        error = remote("attach", "--host", "box", "--log", str(log), code=1)["error"]
        assert error["code"] == "LOG_NOT_READABLE"
        assert f"chmod o+r {log}" in error["message"]
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            asked = ("attach", "--host", "box", "--pid", str(process.pid))
            error = remote(*asked, code=1)["error"]
        assert error["code"] == "NOT_OWNER"
        assert "readlink" in error["message"]
