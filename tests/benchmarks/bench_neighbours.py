"""Steps of a launched run and of nanoGPT's train.py beside a process that keeps a core busy.

    python tests/benchmarks/bench_neighbours.py [--turns 2] [--seconds 4] [--large 1]

The trainings run in turns, as in bench_training.py. Each turn begins with some seconds that are not
counted: a run measures for two seconds before it lets its threads wait otherwise.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.nanogpt import VARIABLE, nanogpt_folder
from support.benchmarks.result import times_as_fast
from support.benchmarks.trainings import LARGE, SMALL, started_trainings, turn_ms
from support.benchmarks.turns import OutOfTime

_SETTLING_S = 5.0
_PEER = "nanoGPT"


def measure(bench: Benchmark) -> None:
    for size in (SMALL, LARGE) if bench.sizes["large"] else (SMALL,):
        name = f"a step of {size} beside a busy process"
        if nanogpt_folder() is None:
            bench.not_run(name, f"{VARIABLE} names no checkout of nanoGPT")
            continue
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            trainings = started_trainings(
                stack,
                Path(folder),
                size,
                {_PEER: {}},
                {"ours": {}},
                bench.before,
                within_s=bench.starting_s(),
            )
            sides = {
                side: lambda training=training: turn_ms(
                    training, bench.sizes["seconds"], _SETTLING_S
                )
                for side, training in trainings.items()
            }
            if not {_PEER, "ours"} <= sides.keys():
                bench.not_run(name, "the two were not warm in time")
                continue
            try:
                with busy_process():
                    taken = bench.in_turns(sides)
            except OutOfTime as error:
                bench.not_run(name, str(error))
                continue
        bench.report(
            name,
            "ms",
            ours=taken["ours"],
            peer=(_PEER, taken[_PEER]),
            before=taken.get("before", ()),
            goal=times_as_fast(1.0),
        )


@contextmanager
def busy_process() -> Iterator[None]:
    """A process that computes without a pause."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    run_benchmark(measure, seconds=Size(4, full=8), large=Size(0, full=1))
