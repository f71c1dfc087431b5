"""Hosts that are added to a workspace and checked."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.backends.ssh_hosts import Sshd
from support.runs.running_run import run_async

from trainmaster.answers.checks import CheckRow
from trainmaster.answers.hosts import HostAddedAnswer, HostCheckAnswer
from trainmaster.machines.check_host import check_host
from trainmaster.machines.host_options import HostOptions
from trainmaster.machines.host_registry import add_host
from trainmaster.sync.workspace import Workspace

BINARIES = ("/usr/bin", "/usr/local/bin", "/bin")


def options(sshd: Sshd, **changes: object) -> HostOptions:
    known = {"key": str(sshd.key), "root": f"{sshd.home}/trainmaster"}
    return HostOptions(**{**known, **changes})  # type: ignore[arg-type]


def add(workspace: Workspace, sshd: Sshd, name: str = "gpu1", **changes: object) -> HostAddedAnswer:
    address = f"{sshd.user}@{sshd.address}:{sshd.port}"
    return run_async(lambda: add_host(workspace, name, address, options(sshd, **changes)))


def check(workspace: Workspace, name: str = "gpu1") -> HostCheckAnswer:
    return run_async(lambda: check_host(workspace, name))


def rows(answer: HostCheckAnswer | HostAddedAnswer) -> dict[str, CheckRow]:
    return {row.name: row for row in answer.checks}


def hide_interpreters(sshd: Sshd) -> None:
    folders = (*BINARIES, "/opt/conda/bin", "/opt/miniconda3/bin")
    hide(sshd, {path.resolve() for name in folders for path in Path(name).glob("python*")})


def hide(sshd: Sshd, paths: set[Path]) -> None:
    """Hide each file in the host's mount namespace."""
    for path in filter(Path.exists, paths):
        command = ["nsenter", f"--mount=/proc/{sshd.listener}/ns/mnt", "mount", "--bind"]
        subprocess.run([*command, "/dev/null", str(path)], check=True)
