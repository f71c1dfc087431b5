"""Time and tokens that a launched run takes to nanoGPT's own final validation loss.

nanoGPT's train.py trains to its end at the best of three learning rates, each with a cosine to a
tenth. The run is as long as three tenths of its tokens, in steps of half the size, and has as many
parameters besides embeddings; its spec names the sizes, so that all that makes it learn is what
`auto` takes. Both are evaluated on the same windows of the held-out text; evaluations are in
neither's time, and at the first of a run's twenty that is not above nanoGPT's final loss it has
come there. Each pair of a seed trains in turns. It needs TRAINMASTER_NANOGPT.

    python tests/benchmarks/bench_quality.py [--seeds 3] [--steps 2000] [--full]
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.held_out_loss import (
    Outcome,
    Text,
    python_sources,
    train_nanogpt,
    train_ours,
)
from support.benchmarks.nanogpt import VARIABLE, nanogpt_folder
from support.benchmarks.result import Goal
from support.benchmarks.trainings import TrainingSize

_SMALL, _LARGE = TrainingSize(4, 4, 192, 256, 12), TrainingSize(6, 6, 384, 256, 12)
_RATES = (1e-3, 2e-3, 4e-3)
_SHARE_OF_TOKENS, _SHARE_OF_TIME = 0.2, 0.3
_LENGTH = 0.3  # of nanoGPT's tokens: in a fifth it came near the loss, not to it
_LONGEST_S, _SHORTEST_S = 3600.0, 3600.0


def measure(bench: Benchmark) -> None:
    if nanogpt_folder() is None:
        bench.not_run("a validation loss", f"{VARIABLE} names no checkout of nanoGPT")
        return
    if bench.left_s() < _SHORTEST_S:
        bench.not_run("a validation loss", "takes an hour: make bench BENCH=quality")
        return
    sizes = (_SMALL, _LARGE) if bench.sizes["large"] else (_SMALL,)
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            compare(bench, size, Path(folder))


def compare(bench: Benchmark, size: TrainingSize, folder: Path) -> None:
    text = python_sources(folder / "text")
    steps, seeds = int(bench.sizes["steps"]), range(1, int(bench.sizes["seeds"]) + 1)
    evaluated = int(bench.sizes["evaluated"])
    half = replace(size, batch=size.batch // 2)
    tried = {rate: peer(text, size, steps, rate, 1, evaluated) for rate in _RATES}
    best = min(tried, key=lambda rate: tried[rate].loss)
    theirs: list[Outcome] = []
    ours: list[Outcome | None] = []
    last: list[Outcome] = []
    for seed in seeds:
        theirs.append(tried[best] if seed == 1 else peer(text, size, steps, best, seed, evaluated))
        outcomes = train_ours(
            folder / f"ours-{seed}",
            text,
            half,
            round(steps * _LENGTH * size.batch / half.batch),
            spec(size),
            seed=seed,
            evaluated=evaluated * size.batch // half.batch,
            within_s=_LONGEST_S,
        )
        ours.append(next((at for at in outcomes if at.loss <= theirs[-1].loss), None))
        last.extend(outcomes[-1:])
    note = described(tried, best, theirs, last)
    reached = [outcome for outcome in ours if outcome is not None]
    if len(reached) < len(ours):
        bench.not_run(f"{size} to nanoGPT's loss", f"not reached by each seed; {note}")
        return
    for name, unit, share in (("time", "s", _SHARE_OF_TIME), ("tokens", "M", _SHARE_OF_TOKENS)):
        bench.report(
            f"{name} of {size} to nanoGPT's loss",
            unit,
            ours=[figure(outcome, name) for outcome in reached],
            peer=(f"nanoGPT, {steps} steps", [figure(outcome, name) for outcome in theirs]),
            goal=Goal("of the peer's time", share),
            note=note if name == "time" else "",
        )


def peer(
    text: Text, size: TrainingSize, steps: int, rate: float, seed: int, evaluated: int
) -> Outcome:
    outcome = train_nanogpt(text, size, steps, rate=rate, seed=seed, evaluated=evaluated)
    print(f"nanoGPT, rate {rate:g}, seed {seed}: {outcome}", flush=True)
    return outcome


def spec(size: TrainingSize) -> dict[str, str]:
    """The model's sizes; style, optimizer and schedule are left to `auto`."""
    sizes = f"n_layer: {size.n_layer}, n_head: {size.n_head}, d_model: {size.d_model}"
    return {
        "model": f"{{{sizes}, vocab_size: 320}}",
        "optimizer": "{}",
        "schedule": "{}",
    }


def figure(outcome: Outcome, name: str) -> float:
    return outcome.seconds if name == "time" else outcome.tokens / 1e6


def described(
    tried: dict[float, Outcome], best: float, theirs: list[Outcome], ours: list[Outcome]
) -> str:
    rates = ", ".join(f"{rate:g}: {outcome.loss:.4f}" for rate, outcome in tried.items())
    both = (", ".join(f"{outcome.loss:.4f}" for outcome in side) for side in (theirs, ours))
    held = (max(outcome.memory_mb for outcome in side) for side in (theirs, ours))
    their_losses, our_losses = both
    their_mb, our_mb = held
    return (
        f"nanoGPT's losses by rate {rates}; at {best:g} by seed {their_losses}; ours at the end "
        f"{our_losses}; memory {their_mb:.0f} and {our_mb:.0f} MB"
    )


if __name__ == "__main__":
    run_benchmark(
        measure,
        seeds=Size(3, full=3),
        steps=Size(2000, full=2000),
        evaluated=Size(40, full=100),
        large=Size(0, full=1),
    )
