"""Steps of a launched run after its first save, beside nanoGPT's own train.py.

The programs run in turns, each alone for some seconds while the others are stopped. nanoGPT runs as
it is, with one line of bf16 autocast, and each of them compiled; it needs TRAINMASTER_NANOGPT.

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
from support.benchmarks.nanogpt import VARIABLE, nanogpt_folder
from support.benchmarks.result import Goal, times_as_fast
from support.benchmarks.trainings import (
    LaunchedRun,
    NanoGPT,
    Training,
    TrainingSize,
    turn_ms,
    warm_up,
)
from support.benchmarks.turns import in_turns

_SMALL, _LARGE = TrainingSize(4, 4, 128, 64, 12), TrainingSize(6, 6, 384, 256, 8)
_GOALS = {_SMALL: times_as_fast(2.0), _LARGE: times_as_fast(2.2)}
_NEVER_SLOWER = times_as_fast(1.0)
_PEERS: dict[str, dict[str, bool]] = {
    "nanoGPT": {},
    "nanoGPT bf16": {"autocast": True},
    "nanoGPT compiled": {"compiled": True},
    "nanoGPT bf16 compiled": {"autocast": True, "compiled": True},
}
_WARM_STEPS = 25  # by default the first save is at step 20


def measure(bench: Benchmark) -> None:
    sizes = (_SMALL, _LARGE) if bench.sizes["large"] else (_SMALL,)
    for size in sizes:
        if nanogpt_folder() is None:
            bench.not_run(f"a step of {size}", f"{VARIABLE} names no checkout of nanoGPT")
            continue
        with tempfile.TemporaryDirectory() as folder:
            compare(bench, size, Path(folder))


def compare(bench: Benchmark, size: TrainingSize, folder: Path) -> None:
    compiled = bool(bench.sizes["compiled"])
    peers = [name for name in _PEERS if compiled or not _PEERS[name].get("compiled")]
    with ExitStack() as stack:
        trainings: dict[str, Training] = {}
        for name in peers:
            peer = stack.enter_context(NanoGPT(folder / name, size, **_PEERS[name]))
            warm_up(peer, lambda peer=peer: len(peer.steps()) >= _WARM_STEPS)
            trainings[name] = peer
        for name, checkout in (("before", bench.before), ("ours", None)):
            if name == "before" and checkout is None:
                continue
            place = folder / name
            run = LaunchedRun(place, size, *([checkout] if checkout else []))
            stack.enter_context(run)
            warm_up(run, lambda run=run: run.has_saved() and len(run.steps()) >= _WARM_STEPS)
            trainings[name] = run
        sides = {
            name: lambda training=training: turn_ms(training, bench.sizes["seconds"])
            for name, training in trainings.items()
        }
        taken = in_turns(sides, bench.turns)
        note = losses(trainings["nanoGPT"], trainings["ours"])
    for name in peers:
        goal: Goal = _GOALS[size] if "bf16" not in name else _NEVER_SLOWER
        bench.report(
            f"a step of {size}",
            "ms",
            ours=taken["ours"],
            peer=(name, taken[name]),
            before=taken.get("before", ()),
            goal=goal,
            note=note if name == "nanoGPT" else "",
        )


def losses(peer: Training, ours: Training) -> str:
    """The mean losses over the same steps: the newest tenth that both have done."""
    both = [peer.steps(), ours.steps()]
    last = min(steps[-1].number for steps in both)
    first = last - max(10, last // 10)
    theirs, own = (
        statistics.fmean(step.loss for step in steps if first < step.number <= last)
        for steps in both
    )
    return (
        f"mean loss of steps {first + 1}–{last}: nanoGPT {theirs:.3f}, ours {own:.3f} "
        f"({own / theirs - 1:+.1%})"
    )


if __name__ == "__main__":
    run_benchmark(measure, seconds=Size(4, full=8), compiled=Size(1, full=1), large=Size(1, full=1))
