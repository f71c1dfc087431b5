from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.runs.running_run import wait_until

from trainer_runtime.host.supervise.publish import close_window, open_window

RUN = "gpt-1.5b-abc234"  # names may hold dots, which tmux reads as something else


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A log, with tmux's and screen's sockets in folders of their own."""
    monkeypatch.setenv("TMUX_TMPDIR", str(tmp_path))
    screens = tmp_path / "screens"
    screens.mkdir(mode=0o700)
    monkeypatch.setenv("SCREENDIR", str(screens))
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.delenv("STY", raising=False)
    path = tmp_path / "train.log"
    path.write_text("step 1 | loss 5.5\n")
    yield path
    close_window(RUN)


@pytest.fixture
def without_tmux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH on which there is screen, but no tmux."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("screen", "tail", "sh"):
        found = shutil.which(name)
        assert found is not None, f"{name} is not installed"
        (programs / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(programs))


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def sessions() -> list[str]:
    return output("tmux", "list-sessions", "-F", "#{session_name}").splitlines()


def test_the_window_shows_the_log_as_it_grows_and_moves(log: Path, tmp_path: Path) -> None:
    command = open_window(RUN, log)
    assert command is not None and command == "tmux attach -t tm-gpt-1_5b-abc234"
    session = command.split()[-1]
    pane = ("tmux", "capture-pane", "-p", "-t", f"={session}:")
    wait_until(lambda: "loss 5.5" in output(*pane), "the log is shown")
    newer = tmp_path / "newer.log"
    newer.write_text("step 2 | loss 4.4\n")
    newer.replace(log)
    wait_until(lambda: "loss 4.4" in output(*pane), "the next log is shown")


def test_the_reported_command_leads_to_the_window(log: Path) -> None:
    command = open_window(RUN, log)
    assert command is not None
    assert sessions() == [command.split()[-1]]


def test_opening_again_finds_the_same_window(log: Path) -> None:
    assert open_window(RUN, log) == open_window(RUN, log)
    assert len(sessions()) == 1


def test_closing_ends_this_runs_window_alone_and_may_be_repeated(log: Path) -> None:
    open_window(RUN, log)
    open_window(f"{RUN}x", log)
    close_window(RUN)
    close_window(RUN)
    assert len(sessions()) == 1
    close_window(f"{RUN}x")
    assert sessions() == []


@pytest.mark.usefixtures("without_tmux")
def test_screen_shows_the_log_where_there_is_no_tmux(log: Path, tmp_path: Path) -> None:
    assert open_window(RUN, log) == "screen -r tm-gpt-1_5b-abc234"
    screens = tmp_path / "screens"
    # Its socket is there a little before it listens.
    wait_until(lambda: "Detached" in output("screen", "-ls"), "the session is there")
    close_window(RUN)
    wait_until(lambda: not os.listdir(screens), "the session is gone")


def test_without_either_there_is_no_window_and_no_error(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert open_window(RUN, log) is None
    close_window(RUN)
