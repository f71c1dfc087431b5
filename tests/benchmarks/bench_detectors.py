"""What a point costs the detectors beside appending it to a list, the least anybody could do.

python tests/benchmarks/bench_detectors.py [--turns 5] [--points 200000]
"""

from __future__ import annotations

import json
import random
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.turns import processor_seconds
from support.core.metric_series import FIRST_T, healthy

from trainer_runtime.core.diagnosis.detectors import Detectors

Point = tuple[str, int, float, float]
_OF_A_STEP = 7


def measure(bench: Benchmark) -> None:
    count = int(bench.sizes["points"])
    compare(bench, "a point of the loss alone", loss_alone(count))
    compare(bench, "a point of seven keys a step", seven_keys(count // _OF_A_STEP))


def compare(bench: Benchmark, name: str, points: list[Point]) -> None:
    fed = [Detectors()]

    def detect() -> None:
        fed[0] = Detectors()
        for point in points:
            fed[0].point(*point)

    def append() -> None:
        lists = defaultdict(list)
        for key, step, _, value in points:
            lists[key].append((step, value))

    bench.compare(
        name,
        "µs",
        ours=processor_seconds(detect, 1e6 / len(points)),
        peer=("a list", processor_seconds(append, 1e6 / len(points))),
        note=f"{len(points):,} points; state of {len(json.dumps(fed[0].to_dict())):,} bytes",
    )

    def tick() -> None:
        for second in range(1000):
            fed[0].tick(points[-1][2] + second)

    bench.compare(f"a tick after {name}", "µs", ours=processor_seconds(tick, 1e3))


def loss_alone(steps: int) -> list[Point]:
    losses = healthy(random.Random(1), steps, 0.012, blips=steps // 500)
    return [("loss", step, FIRST_T + step, loss) for step, loss in enumerate(losses, 1)]


def seven_keys(steps: int) -> list[Point]:
    rng = random.Random(2)
    losses = healthy(rng, steps, 0.012, blips=steps // 500)
    points: list[Point] = []
    for step, loss in enumerate(losses, 1):
        values = {
            "loss": loss,
            "lr": 1e-3,
            "grad_norm": rng.gauss(1, 0.1),
            "tokens": 8192.0 * step,
            "tokens_per_s": rng.gauss(1e5, 1e3),
            "step_time_s": 0.08,
            "mfu": 0.4,
        }
        points += [(key, step, FIRST_T + step, value) for key, value in values.items()]
    return points


if __name__ == "__main__":
    run_benchmark(measure, points=Size(200_000, full=1_000_000))
