"""Fixtures of all tests: homes of their own, the command line, an opened workspace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support.box.box_fixtures import box, shared_cache  # noqa: F401 - fixtures
from support.box.torch_check_cache import torch_checks
from support.kaggle.site import KaggleSite, serving_kaggle
from support.plan.small_plans import (  # noqa: F401 - fixtures
    corpus,
    cpu_host,
    environment,
    make_spec,
    one_source,
    operator,
    plannable,
    receiver,
    remote,
    small_spec,
    sshd,
    text_corpus,
)
from support.runs.running_run import CommandLine, kill_processes

from trainmaster.sync.workspace import Workspace, open_workspace

# How long an example takes says how busy the machine is, and nothing of what is tried.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.fixture(scope="session", autouse=True)
def keeping_torch_checks(tmp_path_factory: pytest.TempPathFactory) -> None:
    torch_checks.folder = tmp_path_factory.mktemp("torch_checks")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home; what its runs leave running is ended afterwards."""
    folder = tmp_path / "home"
    monkeypatch.setenv("TRAINMASTER_HOME", str(folder))
    monkeypatch.setenv("TMUX_TMPDIR", str(tmp_path))
    yield folder
    kill_processes(folder / "local")
    torch_checks.keep(folder / "local")


@pytest.fixture
def workspace(home: Path) -> Iterator[Workspace]:
    with open_workspace({"TRAINMASTER_HOME": str(home)}) as opened:
        yield opened


@pytest.fixture
def kaggle_site(tmp_path: Path) -> Iterator[KaggleSite]:
    """Our stand-in for Kaggle; its `environment` leads the client to it."""
    with serving_kaggle(tmp_path / "kaggle") as site:
        yield site


@pytest.fixture
def command(home: Path) -> CommandLine:
    """`trainmaster` as a command in that home."""
    return CommandLine(home)
