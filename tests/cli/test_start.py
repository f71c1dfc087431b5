"""What a command imports before it answers: that, and not its seconds, is held here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.runs.running_run import run_async, small_spec

from trainmaster.cli.command_table import LISTED
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.launch.launch import launch
from trainmaster.runs.upkeep.maintain import until_closed
from trainmaster.sync.workspace import Workspace

_IMPORTED = """\
import io, sys
from contextlib import redirect_stdout
from trainmaster.cli import main
with redirect_stdout(io.StringIO()):
    try:
        main()
    except SystemExit as end:
        assert end.code == 0
print(*sys.modules)
"""
# Of other packages, with all that they import.
_LIBRARIES = frozenset(
    {"asyncio", "pydantic", "pydantic_core", "sqlite3", "yaml", "httpx", "jinja2", "mcp", "rich"}
)
_ANSWERS = "trainmaster.answers."
# What concerns runs at Slurm or Kaggle alone, and subjects of `control.db` that an ended run needs
# nothing of.
_ELSEWHERE = (
    "trainer_runtime.core.answers",
    "trainmaster.backends.kaggle",
    "trainmaster.backends.launchers",
    "trainmaster.backends.slurm",
    "trainmaster.store.control.alerts",
    "trainmaster.store.control.approvals",
    "trainmaster.store.control.kaggle",
    "trainmaster.store.control.slurm",
)
_HEAVY = frozenset(
    {"asyncssh", "kaggle", "matplotlib", "numpy", "paramiko", "regex", "ssl", *_LIBRARIES}
)


def imported(home: Path | None, *arguments: str) -> set[str]:
    """The modules that a process of its own has imported by the end of a command; `home`: None for
    the default one."""
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTED, *arguments],
        env={**os.environ, "TRAINMASTER_HOME": str(home or "")},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.fixture
def completed(workspace: Workspace, tmp_path: Path) -> str:
    async def work() -> str:
        run = (await launch(workspace, small_spec(tmp_path, host="debug"))).run_id
        await wait_for_event(workspace, run, until=("end",), timeout_s=240)
        await until_closed(workspace, run, 60)
        return run

    return run_async(work)


def test_help_imports_the_commands_and_no_service(tmp_path: Path) -> None:
    modules = imported(tmp_path, "--help")
    assert modules & _HEAVY == set()
    rooms = {name.split(".")[1] for name in modules if name.startswith("trainmaster.")}
    assert rooms == {"cli", "calls", "errors", "home", "settings"}
    assert {f"trainmaster.cli.commands.{one.module}" for one in LISTED} <= modules


def test_status_imports_no_other_command_and_nothing_that_acts_or_plans(
    workspace: Workspace, completed: str
) -> None:
    modules = imported(workspace.home.root, "status", completed, "--json")
    assert modules & _HEAVY == {"asyncio", "sqlite3", "ssl"}  # asyncio brings ssl
    commands = {name for name in modules if name.startswith("trainmaster.cli.commands.")}
    assert commands == {"trainmaster.cli.commands.status"}
    rooms = {name.split(".")[1] for name in modules if name.startswith("trainmaster.")}
    assert rooms & {"keeper", "machines", "mcp", "plan", "transfers"} == set()
    shown = imported(workspace.home.root, "status", completed)
    answers = {name.split(".")[2] for name in shown if name.startswith(_ANSWERS)}
    assert answers == {"base", "fields", "fitting", "metrics", "rehearsal", "status"}


@pytest.mark.parametrize("command", [["runs"], ["logs"], ["metrics"], ["overview", "--json"]])
def test_commands_that_read_ended_runs_do_without_pydantic(
    workspace: Workspace, completed: str, command: list[str]
) -> None:
    of = [completed] if command[0] in ("logs", "metrics") else []
    assert "pydantic" not in imported(workspace.home.root, *command, *of)


def test_status_imports_nothing_of_the_places_where_the_run_is_not(
    workspace: Workspace, completed: str
) -> None:
    modules = imported(workspace.home.root, "status", completed)
    assert sorted(name for name in modules if name.startswith(_ELSEWHERE)) == []


def test_a_tick_without_anything_due_imports_nothing_that_plans(tmp_path: Path) -> None:
    modules = imported(tmp_path, "tick")
    assert "trainmaster.keeper.parts" in modules  # what its parts import is imported by itself, too
    assert sorted(name for name in modules if name.startswith("trainmaster.plan")) == []


def test_help_does_not_search_for_the_default_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "platformdirs" not in imported(None, "--help")
