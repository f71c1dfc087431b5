"""A command that a program's run could not start."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from trainmaster.plan.spec import load_spec
from trainmaster.runs.planning.probe_code import probe_code
from trainmaster.sync.workspace import Workspace
from trainmaster.words.errors import PlanError


def probe(workspace: Workspace, folder: Path, command: str, host: str) -> None:
    path = folder / "program"
    path.mkdir(exist_ok=True)
    (path / "train.sh").write_text("#!/bin/sh\n")
    text = f"name: a\nframework: script\nhost: {host}\nscript: {{path: {path}, command: {command}}}"
    spec = load_spec(text)
    assert spec.script is not None
    asyncio.run(probe_code(workspace, spec, spec.script))


@pytest.mark.parametrize(
    ("command", "host"),
    [
        ("[no-such-program, train.py]", "local"),
        ("[./missing.sh]", "local"),
        ("[./train.sh]", "local"),  # may not be run
        ("[./missing.sh]", "gpu1"),
        ("[./train.sh]", "gpu1"),
    ],
)
def test_a_command_that_is_not_there_is_refused_where_it_can_be_known(
    workspace: Workspace, tmp_path: Path, command: str, host: str
) -> None:
    with pytest.raises(PlanError) as caught:
        probe(workspace, tmp_path, command, host)
    assert (caught.value.code, caught.value.field) == ("COMMAND_NOT_FOUND", "script.command")


@pytest.mark.parametrize(
    ("command", "host"),
    [("[sh, train.sh]", "local"), ("[no-such-program]", "gpu1"), ("[./train.sh]", "gpu1")],
)
def test_a_command_that_may_be_there_passes(
    workspace: Workspace, tmp_path: Path, command: str, host: str
) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program/train.sh").touch(mode=0o755)
    probe(workspace, tmp_path, command, host)
