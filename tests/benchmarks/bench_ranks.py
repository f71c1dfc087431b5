"""A log of many ranks: read into events with its aggregates, beside the parser alone.

python tests/benchmarks/bench_ranks.py [--turns 3] [--ranks 1000] [--steps 40]
"""

from __future__ import annotations

import random
import sys
import tempfile
import tracemalloc
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.turns import rate

from trainer_runtime.core.diagnosis.parse import LogParser
from trainer_runtime.core.diagnosis.rank_aggregates import RankAggregates
from trainer_runtime.host.attach.log_events import LogEvents
from trainer_runtime.host.files.layout import AttemptFolder

_CHUNK_BYTES = 1 << 18


def measure(bench: Benchmark) -> None:
    steps, most = int(bench.sizes["steps"]), int(bench.sizes["ranks"])
    for ranks in (1, 64, most):
        log = log_of(ranks, steps * most // ranks)
        lines = log.count(b"\n")
        events_bytes = len(events_of(log))
        of_steps = steps * most // ranks
        bench.compare(
            f"a log of {ranks:,} ranks",
            "lines/s",
            ours=rate(lambda log=log: events_of(log), lines),
            peer=("the parser alone", rate(lambda log=log: parse(log), lines)),
            note=f"{events_bytes / of_steps:,.0f} bytes of events a step of two metrics, "
            f"{len(log) / of_steps:,.0f} of log",
            turns=min(3, bench.turns),
        )
    bench.report(f"steps of {most:,} ranks held back", "MiB", ours=[held_mib(most)])


def log_of(ranks: int, steps: int) -> bytes:
    chosen = random.Random(7)
    return "".join(
        f"[rank{rank}]: step: {step} loss: {chosen.uniform(2, 3):.4f} "
        f"step_time: {chosen.uniform(0.5, 0.6):.4f}\n"
        for step in range(steps)
        for rank in range(ranks)
    ).encode()


def events_of(log: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        attempt = AttemptFolder(Path(folder))
        attempt.train_log.write_bytes(log)
        reader = LogEvents(attempt, lambda: 1.79e9)
        while reader.advance(live=False):
            pass
        reader.finish()
        reader.close()
        return attempt.events.read_bytes()


def parse(log: bytes) -> int:
    parser, count = LogParser(), 0
    for start in range(0, len(log), _CHUNK_BYTES):
        count += len(list(parser.feed(log[start : start + _CHUNK_BYTES])))
    return count + len(list(parser.close()))


def held_mib(ranks: int) -> float:
    """The memory of the steps that wait for a rank which has ended, of two metrics."""
    tracemalloc.start()
    aggregates = RankAggregates()
    for step in range(120):
        for rank in range(ranks - (step > 2)):
            for key in ("loss", "step_time_s"):
                aggregates.add(key, 0, step, rank, 1.0)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / 2**20


if __name__ == "__main__":
    run_benchmark(measure, ranks=Size(1000, full=1000), steps=Size(20, full=200))
