"""Whose py-spy is run to read a process from outside."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.runs.running_run import wait_until

from trainer_runtime.host.watch.inspection import find_py_spy


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program and a py-spy of its own; the path has none."""
    folder = tmp_path / "bin"
    folder.mkdir(mode=0o755)
    (folder / "python").symlink_to("/bin/cat")
    (folder / "py-spy").write_text("#!/bin/sh\n")
    (folder / "py-spy").chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    return folder


def found_for(program: Path) -> str | None:
    with subprocess.Popen([program], stdin=subprocess.PIPE) as process:
        command = Path(f"/proc/{process.pid}/cmdline")
        wait_until(command.read_bytes, "its command line")  # empty while it is being started
        return find_py_spy(process.pid)


def test_one_of_our_own_beside_the_interpreter_is_taken(beside: Path) -> None:
    assert found_for(beside / "python") == str(beside / "py-spy")


@pytest.mark.parametrize("where", [".", "py-spy"])
def test_one_that_anybody_could_have_put_there_is_not_run(beside: Path, where: str) -> None:
    (beside / where).chmod(0o777)
    assert found_for(beside / "python") is None


def test_one_of_another_user_is_not_run(beside: Path) -> None:
    if os.geteuid() == 0:
        os.chown(beside / "py-spy", 12345, 12345)
        assert found_for(beside / "python") is None
