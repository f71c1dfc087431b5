"""Signals to a training script: at the interpreter's end, and for its stacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.host.tiny_training import (
    REPOSITORY,
)
from support.runs.running_run import LONGEST_S

# Its last object goes after the interpreter has taken all handlers of signals back.
_SIGNALLED_AT_ITS_END = """\
import os, signal, sys
from pathlib import Path
from trainer_runtime.train.loop.run import run

class Last:
    def __del__(self, kill=os.kill, own=os.getpid(), number=signal.SIGTERM):
        kill(own, number)

last = Last()
sys.exit(run(print, Path("missing/config.json")))
"""


def test_sigterm_while_the_interpreter_ends_leaves_the_outcome_as_it_is(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _SIGNALLED_AT_ITS_END],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )
    assert (ended.returncode, "unusable" in ended.stderr) == (77, True), ended.stderr
