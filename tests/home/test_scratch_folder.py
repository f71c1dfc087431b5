"""Temporary folders of processes that were killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainmaster.runs.planning.git.isolated import isolated_git

_PLANS = """
import sys
from trainmaster.runs.planning.git.isolated import isolated_git
with isolated_git("/nowhere") as git:
    print(git.scratch, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_plan_has_left_is_removed_by_the_next_and_a_living_one_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)  # of this process, asked for before
    command = [sys.executable, "-c", _PLANS]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as plan:
        assert plan.stdout is not None
        scratch = Path(plan.stdout.readline().strip())
        with isolated_git("/nowhere") as git:
            assert git.scratch != scratch
        assert scratch.is_dir()
        plan.kill()
        plan.wait()
        assert scratch.is_dir()
        with isolated_git("/nowhere"):
            assert not scratch.exists()
    assert list(tmp_path.iterdir()) == []
