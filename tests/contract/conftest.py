"""Fixtures of the transports' suite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.backends.reachability import TRANSPORTS, Reach, SharedHosts, User
from support.host.container_images import podman, podman_folder  # noqa: F401 - fixtures
from support.session.tiers import by_engines


@pytest.fixture(scope="session")
def hosts() -> Iterator[SharedHosts]:
    with ExitStack() as stack:
        yield SharedHosts(stack)


# asyncssh is what hosts are reached by unless their record names another.
@pytest.fixture(params=[TRANSPORTS[0], *by_engines(*TRANSPORTS[1:])])
def reach(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reach:
    """The way to hosts by each transport in turn, for a user without configuration and agent."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return Reach(request.param, tmp_path / "known_hosts")


@pytest.fixture
def user(tmp_path: Path, reach: Reach, monkeypatch: pytest.MonkeyPatch) -> User:
    return User(tmp_path, monkeypatch)
