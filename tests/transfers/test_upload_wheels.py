"""Uploads wheels of this machine for an environment on a host over SSH."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.backends.ssh_hosts import Sshd
from support.host.fake_packages import make_wheel
from support.runs.running_run import CommandLine, small_spec

from trainmaster.sync.workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.engine]


def spec_with_wheels(folder: Path, wheels: Path) -> str:
    (folder / "own.txt").write_text("tinypack\n")
    described = f"{{python: {sys.executable}, requirements: {folder}/own.txt, wheels: {wheels}}}"
    return small_spec(folder, host="box", environment=described, steps="20")


def test_wheels_are_sent_and_the_environment_is_built_from_them(
    remote: CommandLine, sshd: Sshd, workspace: Workspace, tmp_path: Path
) -> None:
    make_wheel(tmp_path / "wheels", "tinypack", "2.5")
    run = remote("launch", spec_with_wheels(tmp_path, tmp_path / "wheels"))["run_id"]
    ended = remote("wait", run, "--until", "end", "--timeout", "240")
    assert ended["state"] == "completed", remote("logs", run, "--stream", "setup")
    settled = _settled(remote, run)
    assert settled["how"] == f"on top of {sys.executable}"
    code = "import torch, tinypack; print(tinypack.VERSION)"
    result = subprocess.run([settled["python"], "-c", code], capture_output=True, text=True)
    assert result.stdout == "2.5\n"


def _settled(remote: CommandLine, run: str) -> dict[str, Any]:
    path = remote.folder(run).root / "attempts/1/environment.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found
