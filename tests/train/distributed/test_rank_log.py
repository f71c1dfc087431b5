"""What a rank prints is in its own log, and where it was printed before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
