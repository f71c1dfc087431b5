"""Fixtures of all tests: homes of their own, the command line, an opened workspace."""

from __future__ import annotations

import gc
import os
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("support")  # a failed check says what it saw

from hypothesis import HealthCheck, settings
from support.backends.kept_runtimes import kept_runtimes
from support.host.box_fixtures import box, shared_cache  # noqa: F401 - fixtures
from support.host.torch_check_cache import torch_checks
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
from support.session.child_processes import started_here  # noqa: F401 - a fixture
from support.session.heavy_imports import note_imported
from support.session.leftovers import (
    SESSION_VARIABLE,
    end_processes_of,
    end_supervisors_of,
    left_by_session,
)
from support.session.ordering import FileSeconds, longest_first
from support.session.scheduling import HeavyTogether
from support.session.search_path import without_shims
from support.train.object_store import bucket, s3_endpoint  # noqa: F401 - fixtures

from trainmaster.sync.workspace import Workspace, open_workspace

# How long an example takes says how busy the machine is, and nothing of what is tried.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# What ends by itself after the last test, such as a supervisor whose training is over.
_PATIENCE_S = 60.0
_file_seconds = FileSeconds()
# Thousands of tests are collected, which stay: walking them again and again takes a third of it.
gc.disable()


def pytest_configure(config: pytest.Config) -> None:
    if not _is_worker(config):
        os.environ[SESSION_VARIABLE] = uuid.uuid4().hex
        # A shell starts what is in its background with Ctrl-C ignored, and all that it starts.
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ["PATH"] = without_shims(os.environ.get("PATH", os.defpath))
        # Else the threads of each PyTorch spin away the cores that the other workers wait for.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> HeavyTogether | None:
    return HeavyTogether(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _is_worker(config):
        longest_first(items)


def pytest_collection_finish() -> None:
    note_imported()
    gc.freeze()
    gc.enable()


def pytest_runtest_setup() -> None:
    # A training in this process may have left small numbers rounded to zero, as its kernels do.
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _file_seconds.add(report)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails the session where something that its tests started still runs, and ends that."""
    if _is_worker(session.config):
        return
    _file_seconds.write_if_wanted()
    folder = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    left = left_by_session(os.environ[SESSION_VARIABLE], folder, _PATIENCE_S)
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print("\nStill running after the last test, and ended now:", *left, sep="\n  ")


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


@pytest.fixture(scope="session", autouse=True)
def keeping_what_hosts_make(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> None:
    """One folder for all workers: each saves the others some checks and copies."""
    own = tmp_path_factory.getbasetemp()
    folder = own.parent if _is_worker(pytestconfig) else own
    torch_checks.folder, kept_runtimes.folder = folder / "torch_checks", folder / "kept_runtimes"
    torch_checks.folder.mkdir(exist_ok=True)
    kept_runtimes.folder.mkdir(exist_ok=True)


@pytest.fixture(scope="module", autouse=True)
def ending_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ends what still works in the tests' folders after each file, such as a run's window."""
    yield
    end_processes_of(tmp_path_factory.getbasetemp())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home; what its runs leave running is ended afterwards. The working folder, which an
    agent may read, is the test's own."""
    folder = tmp_path / "home"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINMASTER_HOME", str(folder))
    monkeypatch.setenv("TMUX_TMPDIR", str(tmp_path))
    yield folder
    end_supervisors_of(folder / "debug")
    kill_processes(folder / "local")
    end_processes_of(tmp_path)
    torch_checks.keep(folder / "local")


@pytest.fixture
def workspace(home: Path) -> Iterator[Workspace]:
    with open_workspace({"TRAINMASTER_HOME": str(home)}) as opened:
        kept_runtimes.lend(opened.home.local_root, opened.home.debug_root)
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
