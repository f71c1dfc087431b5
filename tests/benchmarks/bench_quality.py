"""Time and tokens that a launched run takes to nanoGPT's own final validation loss.

nanoGPT's train.py trains to its end at the best of three learning rates, each with a cosine to a
tenth. The run is as long as a fifth of its tokens, in steps of a quarter of the size, and has as
many parameters besides embeddings; its spec names the sizes, so that all that makes it learn is
what `auto` takes. Both are evaluated on the same windows of the held-out text; evaluations are in
neither's time, and at the first of a run's twenty that is not above nanoGPT's final loss it has
come there. Each pair of a seed trains in turns. It needs TRAINMASTER_NANOGPT.

On one thread, nanoGPT's 2,000 steps take some 1,550 s of CPU time and the run 330: three seeds take
about an hour on two quiet cores. TRAINMASTER_QUALITY names a file that keeps each training as it
ends and has it again, so that seeds can be run one by one, and a rate that is given spares the
search for the best of three.

    python tests/benchmarks/bench_quality.py [--seeds 3] [--first-seed 1] [--rate 0.002] [--full]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.held_out_loss import (
    KeptOutcomes,
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
_LENGTH = 0.2  # of nanoGPT's tokens
_PARTS = 4  # of nanoGPT's step
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
    first, count = int(bench.sizes["first_seed"]), int(bench.sizes["seeds"])
    sides = Sides(bench, size, folder, python_sources(folder / "text"))
    rates = (bench.sizes["rate"],) if bench.sizes["rate"] else _RATES
    tried = {rate: sides.nanogpt(rate, first) for rate in rates}
    best = min(tried, key=lambda rate: tried[rate].loss)
    theirs: list[Outcome] = []
    ours: list[Outcome | None] = []
    last: list[Outcome] = []
    for seed in range(first, first + count):
        theirs.append(tried[best] if seed == first else sides.nanogpt(best, seed))
        outcomes = sides.ours(seed)
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
            peer=(f"nanoGPT, {sides.steps} steps", [figure(outcome, name) for outcome in theirs]),
            goal=Goal("of the peer's time", share),
            note=note if name == "time" else "",
        )


class Sides:
    """Both sides' trainings of a size; each is printed as it ends."""

    def __init__(self, bench: Benchmark, size: TrainingSize, folder: Path, text: Text) -> None:
        self.steps = int(bench.sizes["steps"])
        self._size, self._folder, self._text = size, folder, text
        self._evaluated = int(bench.sizes["evaluated"])
        self._kept = KeptOutcomes.by_environment()

    def nanogpt(self, rate: float, seed: int) -> Outcome:
        """nanoGPT's last loss."""

        def train() -> list[Outcome]:
            outcome = train_nanogpt(
                self._text,
                self._size,
                self.steps,
                rate=rate,
                seed=seed,
                evaluated=self._evaluated,
            )
            return [outcome]

        return self._trained(f"nanoGPT, rate {rate:g}", seed, train)[-1]

    def ours(self, seed: int) -> list[Outcome]:
        """A launched run's losses at each of its evaluations."""
        part = replace(self._size, batch=self._size.batch // _PARTS)
        steps = round(self.steps * _LENGTH * self._size.batch / part.batch)
        evaluated = self._evaluated * self._size.batch // part.batch

        def train() -> list[Outcome]:
            return train_ours(
                self._folder / f"ours-{seed}",
                self._text,
                part,
                steps,
                spec(self._size),
                seed=seed,
                evaluated=evaluated,
                within_s=_LONGEST_S,
            )

        return self._trained("ours", seed, train)

    def _trained(self, side: str, seed: int, train: Callable[[], list[Outcome]]) -> list[Outcome]:
        key = f"{side}, seed {seed}, {self.steps} steps of {self._size}"
        outcomes = self._kept.of(key, train)
        print(f"{key}: {outcomes[-1] if outcomes else 'no evaluation'}", flush=True)
        return outcomes


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
        first_seed=Size(1, full=1),
        rate=Size(0, full=0),
        steps=Size(2000, full=2000),
        evaluated=Size(40, full=100),
        large=Size(0, full=1),
    )
