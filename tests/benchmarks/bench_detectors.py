"""The cost of the detectors: microseconds per point over a run of a million, and per tick.

Beside it the time of appending the same points to lists, the least that anybody could do with them.

    python tests/benchmarks/bench_detectors.py [--points 1000000]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.core.metric_series import FIRST_T, healthy

from trainer_runtime.core.diagnosis.detectors import Detectors

Point = tuple[str, int, float, float]
_OF_A_STEP = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=1_000_000)
    count = parser.parse_args().points
    measure("loss alone", loss_alone(count))
    measure("seven keys a step", seven_keys(count // _OF_A_STEP))


def measure(name: str, points: list[Point]) -> None:
    detectors, lists = Detectors(), defaultdict(list)
    ours_s = timed(lambda: [detectors.point(*point) for point in points] and None)
    least_s = timed(lambda: [lists[key].append((step, v)) for key, step, _, v in points] and None)
    tick_s = timed(lambda: [detectors.tick(points[-1][2] + i) for i in range(1000)] and None) / 1000
    state_s = timed(lambda: [json.dumps(detectors.to_dict()) for _ in range(100)] and None) / 100
    size = len(json.dumps(detectors.to_dict()))
    print(
        f"{name:18} {len(points):9,} points: {1e6 * ours_s / len(points):5.2f} us each "
        f"(appending: {1e6 * least_s / len(points):.2f}), tick {1e6 * tick_s:.0f} us, "
        f"state {size:,} bytes in {1e3 * state_s:.2f} ms"
    )


def timed(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


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
    main()
