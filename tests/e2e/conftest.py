"""Hosts on which the programs of others run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from support.backends.ssh_hosts import Sshd
from support.host.container_images import podman, podman_folder  # noqa: F401 - fixtures
from support.host.docker_daemon import docker  # noqa: F401 - a fixture
from support.runs.running_run import CommandLine
from support.runs.slurm_run import cluster, login  # noqa: F401 - fixtures
from support.runs.two_hosts import three, two  # noqa: F401 - fixtures


@pytest.fixture
def here(home: Path) -> CommandLine:
    """`trainmaster` with this machine as its host."""
    return CommandLine(home, "local", home / "local")


@pytest.fixture
def remote(home: Path) -> Iterator[CommandLine]:
    """`trainmaster` with a host over SSH, which it knows as `gpu1`."""
    with Sshd(user=who_may_run(sys.executable)) as host:
        record = host.record()
        command = CommandLine(home, "gpu1", host.home / "trainmaster")
        address = f"{record.user}@{record.address}:{record.port}"
        command("hosts", "add", "gpu1", address, "--key", str(record.key), "--root", record.root)
        yield command


def who_may_run(program: str) -> Literal["root", "trainer"]:
    """An ordinary user, unless this checkout lies where only root may read."""
    ways = Path(program).resolve().parents
    return "trainer" if all(way.stat().st_mode & 0o001 for way in ways) else "root"
