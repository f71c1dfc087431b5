"""Trainings without PyTorch, for tests of what surrounds a training: a tenth of the processor time.

A run of `framework: script` is one like any other to hosts, clients and rooms. What concerns the
trainer itself (its saves, its log, its memory, its ranks) takes `running_run.small_spec`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
_FILES = (
    REPOSITORY / "tests/support/programs/light_training.py",
    REPOSITORY / "templates/script/report.py",
)


def light_spec(folder: Path, *words: str, keep_latest: int | None = None, **changes: str) -> str:
    """A spec's text over the program, which is copied below `folder`; 60 steps with a checkpoint
    after each 20th. `words`: its arguments; `keep_latest`: how many checkpoints stay, so many of
    which are taken although it ends meanwhile; `changes` replace top-level lines."""
    program = folder / "program"
    program.mkdir(parents=True, exist_ok=True)
    for file in _FILES:
        shutil.copy(file, program)
    script = {
        "path": str(program),
        "command": ["python3", "light_training.py", *words],
        "resume": ["--resume", "{checkpoint}"],
        "checkpoints": {"path": "out/step-*.json", "keep_latest": keep_latest},
        "final": "out/final",
    }
    lines = {
        "name": "small",
        "framework": "script",
        "script": json.dumps(script),
        "steps": "60",
        "compute": "{gpus: 0}",
        **changes,
    }
    return "".join(f"{key}: {value}\n" for key, value in lines.items())


def standing(step: int, *attempts: int, until: Path | None = None) -> Sequence[str]:
    """The program's words to come no further, in these attempts (the first), than to a step, until
    it is stopped: no fault comes too late. `until`: a file that ends the waiting, too."""
    words = ["--stands-at", str(step), "--stands-in", *map(str, attempts or (1,))]
    return words if until is None else [*words, "--stands-until", str(until)]


def lasting(step_s: float = 0.02) -> Sequence[str]:
    """The program's words by which each step lasts for so long."""
    return ["--step-s", str(step_s)]
