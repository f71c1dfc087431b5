"""`metrics FILE` beside one regular expression per line, and `logs --grep` beside `grep -c`.

python tests/benchmarks/bench_files.py [--turns 3] [--megabytes 100] [--full]

Each is a whole program on a log that is made for it: with --full, of 2 GB.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.result import at_least, times_as_fast
from support.benchmarks.turns import rate
from support.core.synthetic_logs import made_log, noise

_ONE_REGEX = """
import re, sys
one = re.compile(rb"(?:step|iter)[:= ]*(\\d+).*?loss[^\\d-]{1,9}([\\d.]+)")
for line in open(sys.argv[1], "rb"):
    found = one.search(line)
    if found:
        float(found[2])
"""
_PIECE_LINES = 100_000


def measure(bench: Benchmark) -> None:
    size = int(bench.sizes["megabytes"] * 1e6)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "train.log")
        written = write_log(log, size)
        bench.compare(
            "metrics FILE",
            "MB/s",
            ours=rate(lambda: trainmaster("metrics", str(log)), written / 1e6),
            peer=("one regex", rate(lambda: one_regex(log), written / 1e6)),
            goal=at_least(45),
        )
        for word in ("CUDA out of memory", "checkpoint"):
            bench.compare(
                f"logs --grep {word!r}",
                "MB/s",
                ours=rate(lambda w=word: trainmaster("logs", str(log), "--grep", w), written / 1e6),
                peer=("grep -c", rate(lambda w=word: grep(log, w), written / 1e6)),
                goal=times_as_fast(0.3),
            )


def write_log(path: Path, size: int) -> int:
    """A log of `size` bytes or a little more: a training, again and again, and noise."""
    piece = made_log("nanogpt", _PIECE_LINES) + noise(_PIECE_LINES // 4)
    written = 0
    with path.open("wb") as file:
        while written < size:
            written += file.write(piece)
    return written


def trainmaster(*words: str) -> None:
    """The program in a home of its own, so that nothing was read before."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "TRAINMASTER_HOME": home}
        command = [sys.executable, "-m", "trainmaster", *words, "--json"]
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)


def one_regex(log: Path) -> None:
    subprocess.run([sys.executable, "-c", _ONE_REGEX, str(log)], check=True)


def grep(log: Path, word: str) -> None:
    """Through a pipe: with its output discarded, grep stops at the first line."""
    subprocess.run(["grep", "-c", "--", word, str(log)], stdout=subprocess.PIPE, check=False)


if __name__ == "__main__":
    run_benchmark(measure, megabytes=Size(100, full=2000))
