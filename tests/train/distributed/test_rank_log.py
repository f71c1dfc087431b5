"""What a rank prints is in its own log, and where it was printed before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from trainer_runtime.core.processes.rank_exits import (
    FOLDER_VARIABLE,
    WATCHER_VARIABLE,
    end_file,
    log_file,
)

_PROGRAM = """
import logging, sys
before = logging.StreamHandler()
logging.getLogger("library").addHandler(before)
from pathlib import Path
from trainer_runtime.train.distributed.rank_log import keep_log
keep_log(Path(sys.argv[1]))
print("step 1", "loss 2.5")
sys.stderr.writelines(["12%\\r", "25%\\n"])
logging.getLogger("library").warning("a warning")
assert sys.stdout.fileno() == 1 and not sys.stderr.isatty()
raise ValueError("the end")
"""


def _run(log: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _PROGRAM, str(log)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_rank_has_all_that_it_prints_in_its_own_log_too(tmp_path: Path) -> None:
    done = _run(tmp_path / "1.log")
    assert (done.returncode, done.stdout) == (1, "step 1 loss 2.5\n")
    own = (tmp_path / "1.log").read_bytes().decode()
    assert own == done.stdout + done.stderr.replace("12%\n", "12%\r")
    assert own.splitlines()[2:4] == ["25%", "a warning"]
    assert own.endswith("ValueError: the end\n")


def test_a_rank_without_room_for_its_log_trains_all_the_same() -> None:
    done = _run(Path("/dev/full"))
    assert done.stdout == "step 1 loss 2.5\n" and done.stderr.endswith("ValueError: the end\n")


_ENDING = """
import atexit, sys
from pathlib import Path
from trainer_runtime.train.distributed import ranks
atexit.register(lambda: print("at exit", end=""))
ranks.join()
print("trained", end=" ")
ranks.end_process(ranks.record_exit(0))
"""


def test_a_rank_that_ends_its_process_does_what_was_registered_and_prints_all(
    tmp_path: Path,
) -> None:
    watched = {FOLDER_VARIABLE: str(tmp_path), WATCHER_VARIABLE: str(os.getpid())}
    command = [sys.executable, "-c", _ENDING]
    environment = {**os.environ, **watched}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "trained at exit"), done.stderr
    assert (tmp_path / log_file(0)).read_text() == "trained at exit"
    assert json.loads((tmp_path / end_file(0)).read_text())["code"] == 0
