"""The program for machines with a GPU, as far as a processor can show that it works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.benchmarks.result import Result

PROGRAM = Path(__file__).parents[1] / "benchmarks" / "gpu.py"
_LONGEST_S = 600


def results(folder: Path, *arguments: str, python: tuple[str, ...] = (sys.executable,)) -> Any:
    """The exit code, and the results that the program leaves in `folder`."""
    command = [*python, str(PROGRAM), str(folder), *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "OUT"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_LONGEST_S, check=False
    )
    [kept] = folder.glob("*.json")
    lines = [Result.from_dict(line) for line in json.loads(kept.read_text())["results"]]
    assert kept.with_suffix(".md").read_text().count("\n| ") == len(lines) + 1
    return done.returncode, lines


def test_without_pytorch_every_part_says_so(tmp_path: Path) -> None:
    code, lines = results(tmp_path, python=(sys.executable, "-S"))  # without its packages
    assert code == 2
    assert len(lines) >= 10
    assert {line.not_run for line in lines} == {
        "this interpreter has no PyTorch: run it by one that has"
    }


@pytest.mark.engine
@pytest.mark.slow
def test_what_a_processor_can_run_of_it_passes(tmp_path: Path) -> None:
    parts = "--parts=checkpoint,oom,speed"
    _, lines = results(tmp_path, "--device=cpu", "--tiny", "--slack=5", "--within=500", parts)
    found = {line.name: line for line in lines}
    assert found["an out-of-memory repaired"].not_run == "only a GPU can answer it"
    assert found["checkpoint of 124M parameters: the loop stands still"].peer
    assert found["a tiny GPT, best against best"].ours
    assert not [line for line in lines if "failed" in line.not_run]
