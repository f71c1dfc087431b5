"""A command that a program's run could not start."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from trainmaster.errors.errors import PlanError
from trainmaster.plan.decisions.program_file import refuse_missing_file
from trainmaster.plan.spec import load_spec
from trainmaster.runs.planning.probe_code import probe_code
from trainmaster.sync.workspace import Workspace


def probe(workspace: Workspace, folder: Path, command: str, host: str, *, prefix: str = "") -> None:
    path = folder / "program"
    path.mkdir(exist_ok=True)
    (path / "train.sh").write_text("#!/bin/sh\n")
    script = f"{{path: {prefix}{path}, command: {command}}}"
    text = f"name: a\nframework: script\nhost: {host}\nscript: {script}"
    spec = load_spec(text)
    assert spec.script is not None
    code, _ = asyncio.run(probe_code(workspace, spec, spec.script))
    refuse_missing_file(spec.script, code)


@pytest.mark.parametrize(
    ("command", "host"),
    [
        ("[no-such-program, train.py]", "local"),
        ("[./missing.sh]", "local"),
        ("[./train.sh]", "local"),  # may not be run
        ("[./missing.sh]", "gpu1"),
        ("[./train.sh]", "gpu1"),
        ("[sh, trian.sh]", "local"),
        ("[sh, -e, trian.sh]", "gpu1"),
        ("[python3, -u, -X, dev, trian.py]", "gpu1"),
        ("[torchrun, '--nproc_per_node=2', trian.py]", "gpu1"),
        ("[python3, /no/such/train.py]", "local"),
        ("[sh, ../trian.sh]", "local"),
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
    [
        ("[sh, train.sh]", "local"),
        ("[no-such-program]", "gpu1"),
        ("[./train.sh]", "gpu1"),
        ("[sh, ./train.sh, missing.txt]", "gpu1"),
        ("[sh, -c, 'python3 made-by-another.py']", "local"),
        ("[python3, -m, package, missing.py]", "local"),
        ("[python3, /no/such/train.py]", "gpu1"),
        ("[python3, '{run_dir}/train.py']", "local"),
        ("[torchrun, -m, package]", "gpu1"),
    ],
)
def test_a_command_that_may_be_there_passes(
    workspace: Workspace, tmp_path: Path, command: str, host: str
) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program/train.sh").touch(mode=0o755)
    probe(workspace, tmp_path, command, host)


def test_the_refusal_names_the_file_that_was_meant(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"'trian\.sh'") as caught:
        probe(workspace, tmp_path, "[sh, trian.sh]", "gpu1")
    assert "Did you mean train.sh?" in caught.value.fix
    with pytest.raises(PlanError, match=r"'trian\.sh', which is not there"):
        probe(workspace, tmp_path, "[sh, trian.sh]", "local", prefix="host:")
