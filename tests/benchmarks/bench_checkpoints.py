"""How long a loop stands still for a warm save beside torch.save and fsync, and what events cost.

python tests/benchmarks/bench_checkpoints.py [--turns 5] [--parameters 30000000]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.result import at_most, of_peers_time
from support.benchmarks.turns import seconds

from trainer_runtime.core.files.manifest import verify
from trainer_runtime.train.attempt.events import EventLog
from trainer_runtime.train.checkpoints.checkpoint import Checkpoint, Checkpoints
from trainer_runtime.train.checkpoints.checkpoint_store import CheckpointStore, Origin
from trainer_runtime.train.checkpoints.restore import MODEL, OPTIMIZER
from trainer_runtime.train.checkpoints.retention import Retention

_EVENTS = 5000
_STEP_US = 20_000  # of a small model


def measure(bench: Benchmark) -> None:
    with tempfile.TemporaryDirectory() as folder:
        compare_saves(bench, Path(folder), int(bench.sizes["parameters"]))
        measure_events(bench, Path(folder))


def compare_saves(bench: Benchmark, folder: Path, parameters: int) -> None:
    part = {str(index): torch.randn(parameters // 30) for index in range(30)}
    moments = {f"{key}/{name}": tensor.clone() for key in "mv" for name, tensor in part.items()}
    tensors = {MODEL: part, OPTIMIZER: moments}
    events = EventLog(folder / "checkpoint_events.jsonl")
    retention = Retention(1, 0, None, "val_loss")
    store = CheckpointStore(folder / "checkpoints", Origin(1, "", 0), retention, events)
    checkpoints = Checkpoints(store, events)
    checkpoints.allocate(tensors)
    step = 0

    def stall_s() -> float:
        nonlocal step
        step += 1
        started = time.perf_counter()
        checkpoints.save(Checkpoint(step, tensors, {}, {}))
        stalled = time.perf_counter() - started
        checkpoints.wait()  # not beside the peer's save
        return stalled

    def plain() -> None:
        with (folder / "plain.pt").open("wb") as file:
            torch.save(tensors, file)
            file.flush()
            os.fsync(file.fileno())

    bench.compare(
        f"a save of {12 * parameters / 2**20:.0f} MiB",
        "s",
        ours=stall_s,
        peer=("torch.save + fsync", seconds(plain)),
        goal=of_peers_time(0.15),
        note="the time for which the loop stands still; the files are written beside it",
    )
    assert verify(folder / "checkpoints" / f"step-{step:08d}") == []


def measure_events(bench: Benchmark, folder: Path) -> None:
    events = EventLog(folder / "many_events.jsonl")
    values = dict.fromkeys(("loss", "lr", "grad_norm", "tokens_per_s", "mfu", "tflops"), 1.0 / 3.0)
    values |= dict.fromkeys(("clip_fraction", "tokens", "step_time_s", "data_share"), 2.0 / 3.0)

    def emit() -> None:
        for step in range(_EVENTS):
            events.emit("metric", step=step, values=values)

    bench.compare(
        "the event of a step",
        "µs",
        ours=seconds(emit, 1e6 / _EVENTS),
        goal=at_most(_STEP_US / 100),
        note=f"the goal is 1 % of a step of {_STEP_US // 1000} ms",
    )


if __name__ == "__main__":
    run_benchmark(measure, parameters=Size(30_000_000, full=124_000_000))
