"""What `doctor` says about reaching other machines; nothing of it is needed here."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.backends.ssh_hosts import make_key
from support.mcp.scripted_agent import ssh_agent
from support.runs.running_run import run_async

from trainmaster.answers.checks import CheckRow
from trainmaster.cli.doctor.ssh import ssh_checks


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A home without keys, and no agent."""
    variables = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
    return {**variables, "HOME": str(tmp_path)}


@pytest.fixture
def agent(tmp_path: Path, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """The same with a real agent."""
    socket = tmp_path / "agent"
    with ssh_agent(socket):
        yield {**environment, "SSH_AUTH_SOCK": str(socket)}


def checked(environment: dict[str, str]) -> dict[str, CheckRow]:
    rows = {row.name: row for row in run_async(lambda: ssh_checks(environment))}
    assert all(row.state == "ok" or (row.state == "warn" and row.remedy) for row in rows.values())
    return rows


def test_a_machine_without_agent_and_keys_is_reported_with_remedies(
    environment: dict[str, str],
) -> None:
    rows = checked(environment)
    assert "OpenSSH_" in rows["ssh"].found
    assert rows["ssh agent"].found == "SSH_AUTH_SOCK is not set"
    assert rows["ssh keys"].state == "warn"


def test_a_machine_without_the_program_is_reported(environment: dict[str, str]) -> None:
    assert checked({**environment, "PATH": "/nowhere"})["ssh"].state == "warn"


def test_an_agent_is_asked_for_its_keys(agent: dict[str, str], tmp_path: Path) -> None:
    assert checked(agent)["ssh agent"].found == "holds no keys"
    key = make_key(tmp_path / "id_ed25519")
    subprocess.run(["ssh-add", "-q", str(key)], env=agent, check=True)
    assert checked(agent)["ssh agent"].found == "1 key"


def test_an_agent_that_is_gone_is_reported(environment: dict[str, str], tmp_path: Path) -> None:
    gone = {**environment, "SSH_AUTH_SOCK": str(tmp_path / "gone")}
    assert checked(gone)["ssh agent"].found == "does not answer"


def test_private_keys_are_named(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    make_key(tmp_path / ".ssh" / "id_ed25519")
    (tmp_path / ".ssh" / "lonely.pub").write_text("ssh-ed25519 AAAA\n")
    assert checked(environment)["ssh keys"].found == f"id_ed25519 in {tmp_path}/.ssh"
