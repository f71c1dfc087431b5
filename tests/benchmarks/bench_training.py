"""Steps of a launched run after its first save, beside nanoGPT's own train.py.

The programs run in turns, each alone for some seconds while the others are stopped. nanoGPT runs as
it is and, where the processor computes in bf16, with one line of bf16 autocast; with --compiled 1
also each of them compiled, beside a run that is. It needs TRAINMASTER_NANOGPT.

    python tests/benchmarks/bench_training.py [--turns 3] [--seconds 4] [--compiled 1] [--large 1]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.machine import computes_bf16
from support.benchmarks.nanogpt import VARIABLE, nanogpt_folder
from support.benchmarks.result import Goal, times_as_fast
from support.benchmarks.trainings import (
    LARGE,
    SMALL,
    Training,
    TrainingSize,
    started_trainings,
    turn_ms,
)
from support.benchmarks.turns import OutOfTime

_GOALS = {SMALL: times_as_fast(2.0), LARGE: times_as_fast(2.2)}
_NEVER_SLOWER = times_as_fast(1.0)
# Each peer, and our side of the comparison: both compiled or neither.
_PEERS: dict[str, dict[str, bool]] = {
    "nanoGPT": {},
    "nanoGPT bf16": {"autocast": True},
    "nanoGPT compiled": {"compiled": True},
    "nanoGPT bf16 compiled": {"autocast": True, "compiled": True},
}
_OURS = {"ours": {"compute": "{compile: false}"}, "ours compiled": {"compute": "{compile: true}"}}


def measure(bench: Benchmark) -> None:
    sizes = (SMALL, LARGE) if bench.sizes["large"] else (SMALL,)
    for size in sizes:
        if nanogpt_folder() is None:
            bench.not_run(f"a step of {size}", f"{VARIABLE} names no checkout of nanoGPT")
            continue
        with tempfile.TemporaryDirectory() as folder:
            compare(bench, size, Path(folder))


def compare(bench: Benchmark, size: TrainingSize, folder: Path) -> None:
    compiled = bool(bench.sizes["compiled"])
    wanted = {name: of for name, of in _PEERS.items() if compiled or not of.get("compiled")}
    peers = {name: of for name, of in wanted.items() if computes_bf16() or not of.get("autocast")}
    ours = _OURS if compiled else {"ours": _OURS["ours"]}
    taken: dict[str, tuple[float, ...]] = {}
    starting_s = bench.starting_s()
    note, why_not = "", f"{len(peers) + len(ours)} programs were not warm within {starting_s:.0f} s"
    with ExitStack() as stack:
        trainings = started_trainings(
            stack, folder, size, peers, ours, bench.before, within_s=starting_s
        )
        sides = {
            name: lambda training=training: turn_ms(training, bench.sizes["seconds"])
            for name, training in trainings.items()
        }
        try:
            taken = bench.in_turns(sides)
        except OutOfTime as error:
            why_not = str(error)
        if {"nanoGPT", "ours"} <= taken.keys():
            note = losses(trainings["nanoGPT"], trainings["ours"])
    for name in [name for name in wanted if name not in peers]:
        bench.not_run(f"a step of {size} beside {name}", "this processor does not compute in bf16")
    for name, options in peers.items():
        goal: Goal = _GOALS[size] if "bf16" not in name else _NEVER_SLOWER
        both_compiled = bool(options.get("compiled"))
        title = f"a step of {size}{', compiled' if both_compiled else ''}"
        side = "ours compiled" if both_compiled else "ours"
        if not {name, side} <= taken.keys():
            bench.not_run(f"{title} beside {name}", why_not)
            continue
        bench.report(
            title,
            "ms",
            ours=taken[side],
            peer=(name, taken[name]),
            before=() if both_compiled else taken.get("before", ()),
            goal=goal,
            note=note if name == "nanoGPT" else "",
        )


def losses(peer: Training, ours: Training) -> str:
    """The mean losses over the same steps: the newest quarter that both have done.

    Each draws its own batches: a mean of 10 steps of the large model differs by 1.5 % between seeds
    of one program.
    """
    both = [peer.steps(), ours.steps()]
    last = min(steps[-1].number for steps in both)
    first = max(0, last - max(20, last // 4))
    theirs, own = (
        statistics.fmean(step.loss for step in steps if first < step.number <= last)
        for steps in both
    )
    return (
        f"mean loss of steps {first + 1}–{last}: nanoGPT {theirs:.3f}, ours {own:.3f} "
        f"({own / theirs - 1:+.1%})"
    )


if __name__ == "__main__":
    run_benchmark(measure, seconds=Size(4, full=8), compiled=Size(0, full=1), large=Size(1, full=1))
