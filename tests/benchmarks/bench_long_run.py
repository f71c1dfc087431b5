"""A run of many steps: its size on the disk, its supervisor's revival, ingest and rebuild.

Makes a run's folder as a training of so many steps over three months leaves it, then starts the
real supervisor on it: twice, each time killed once it lives, so that the second finds the snapshot
of the first. A revival lasts from the start of the process to its first line.

    python tests/benchmarks/bench_long_run.py [--full] [--steps 5000000]

`TRAINMASTER_LONG_RUN` names a folder where the run is kept for the next time: to make one of 5
million steps takes minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.result import at_least, at_most
from support.benchmarks.turns import rate
from support.host.scripted_processes import CONFIG

from trainer_runtime.core.files.compacted import REGION_BYTES
from trainer_runtime.core.protocol.lines import encode
from trainer_runtime.host.files.compacted import read_at
from trainer_runtime.host.files.compaction import Compaction
from trainer_runtime.host.files.layout import RunFolder
from trainmaster.home.paths import HOME_VARIABLE
from trainmaster.store.metrics_store import MetricsStore
from trainmaster.store.mirror import Mirror
from trainmaster.sync.ingest import ingest_placement
from trainmaster.sync.rebuild import rebuild
from trainmaster.sync.workspace import open_workspace

REPOSITORY = Path(__file__).parents[2]
MONTHS_S = 90 * 86400.0
BEGAN_T = 1_760_000_000.0
GPUS = 8
_SAMPLE_S = 10.0
_DEADLINE_S = 900.0
_INGESTED_BYTES = 16 << 20
Body = tuple[float, str, dict[str, object]]  # time, kind, fields


def measure(bench: Benchmark) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(os.environ.get("TRAINMASTER_LONG_RUN") or folder, "runs/long-abc234"))
        if not run.journal.exists():
            make(run, int(bench.sizes["steps"]))
        compact(bench, run)
        compare_revivals(bench, run)
        ingest(bench, run, Path(folder))
        rebuild_database(bench, run, Path(folder))


def compact(bench: Benchmark, run: RunFolder) -> None:
    """All that a supervisor would have compressed by now."""
    files, began, regions = (run.journal, run.attempt(1).events), time.process_time(), 0
    for path in files:
        compaction = Compaction(path)
        while compaction.step():
            regions += 1
    took_s = time.process_time() - began
    archives = [path for folder in run.root.rglob("*.compacted") for path in folder.iterdir()]
    disk_mib = sum(path.stat().st_blocks for path in (*files, *archives)) * 512 / 2**20
    goal = at_most(953)  # 1 GB
    bench.report(
        "journal and events on the disk", "MiB", ours=[disk_mib], goal=goal, note=sizes(run)
    )
    if regions:
        rate_mb_s = regions * REGION_BYTES / 1e6 / took_s
        bench.report("compressed", "MB/s", ours=[rate_mb_s], note="processor time")


def sizes(run: RunFolder) -> str:
    size_mib = sum(path.stat().st_size for path in (run.journal, run.attempt(1).events)) / 2**20
    return f"journal and events of {size_mib:,.0f} MiB"


def compare_revivals(bench: Benchmark, run: RunFolder) -> None:
    note = sizes(run)
    if not run.snapshot.exists():
        taken_s, peak_mib = revive(run)
        bench.report("revival that reads everything", "s", ours=[taken_s], note=note)
        bench.report("its memory", "MiB", ours=[peak_mib])
    again = [revive(run) for _ in range(bench.turns)]
    seconds, peaks = zip(*again, strict=True)
    bench.report("revival from a snapshot", "s", ours=seconds, goal=at_most(2), note=note)
    bench.report("its memory", "MiB", ours=peaks, goal=at_most(100))


def ingest(bench: Benchmark, run: RunFolder, folder: Path) -> None:
    """Of what the mirror holds of the run's events, into a new database each turn."""
    mirror, numbers = Mirror(folder / "mirror").of(run.run_id, 1), count()
    mirror.append("attempts/1/events.jsonl", first_events(run))

    def work() -> int:
        with closing(MetricsStore(folder / f"{next(numbers)}.db")) as store:
            ingest_placement(store, mirror, run.run_id, 1)
            return store.count_points()

    points = work()
    bench.compare(
        "ingest of events, parsing included",
        "points/s",
        ours=rate(work, points, of_processor=True),
        goal=at_least(300_000),
        note="processor time",
    )


def rebuild_database(bench: Benchmark, run: RunFolder, folder: Path) -> None:
    """From a mirror with the same events, piece by piece as in the background."""
    with open_workspace({HOME_VARIABLE: str(folder / "home")}) as workspace:
        metrics = workspace.metrics
        mirror = workspace.mirror.of(run.run_id, 1)
        mirror.append("attempts/1/events.jsonl", first_events(run))

        def work() -> int:
            with metrics.writing():
                metrics.clear()
                metrics.expect_replay()
            rebuild(workspace)
            return metrics.count_points()

        bench.compare(
            "rebuild of the metrics database in pieces",
            "points/s",
            ours=rate(work, work(), of_processor=True),
            note="processor time",
        )


def first_events(run: RunFolder) -> bytes:
    events = run.attempt(1).events
    with events.open("rb") as opened:
        return read_at(opened.fileno(), str(events), 0, _INGESTED_BYTES)


def make(run: RunFolder, steps: int) -> None:
    """The folder of a run that has trained for so many steps, and whose processes are gone."""
    run.attempt(1).root.mkdir(parents=True)
    config = {**CONFIG, "run_id": run.root.name, "steps": 2 * steps}
    for path in (run.config, run.attempt(1).config):
        path.write_text(json.dumps(config))
    run.desired.write_text(json.dumps({"state": "stopped", "generation": 2, "grace_s": 600.0}))
    duration_s = min(MONTHS_S, steps * 2.0)
    write(run.attempt(1).events, metrics(steps, duration_s / steps))
    write(run.journal, journal(duration_s))


def write(path: Path, bodies: Iterator[Body]) -> None:
    with path.open("wb") as file:
        for seq, body in enumerate(bodies):
            file.write(encode(seq, *body))


def metrics(steps: int, step_s: float) -> Iterator[Body]:
    """What our own loop reports of each step, and a checkpoint now and then."""
    made, every = Random(5), max(1, steps // 2000)
    yield BEGAN_T, "started", {"step": 0, "target_step": 2 * steps, "resumed_from": None}
    for step in range(1, steps + 1):
        t, took_s = BEGAN_T + step * step_s, step_s * made.uniform(0.95, 1.05)
        values = {
            "loss": 2.0 + 8.0 / (1.0 + step * 1e-4) * made.uniform(0.98, 1.02),
            "lr": 3e-4 * (1.0 - step / (2 * steps)),
            "grad_norm": made.uniform(0.4, 0.6),
            "clip_fraction": 0.0,
            "tokens": step * 8192,
            "tokens_per_s": 8192 / took_s,
            "mfu": made.uniform(0.4, 0.42),
            "step_time_s": took_s,
            "data_time_share": made.uniform(0.0, 0.01),
        }
        yield t, "metric", {"step": step, "values": values}
        if step % every == 0:
            path = f"checkpoints/step-{step:08d}"
            saved = {"step": step, "path": path, "size_bytes": 1 << 30, "metrics": {}}
            yield t, "checkpoint", {"action": "saved", **saved}
            yield t, "checkpoint", {"action": "verified", "step": step}
            if step > 3 * every:
                yield t, "checkpoint", {"action": "pruned", "step": step - 3 * every}


def journal(duration_s: float) -> Iterator[Body]:
    """Of a host with eight GPUs, a sample every ten seconds."""
    made = Random(6)
    plan = {"why": "launch", "mode": "latest", "candidates": [], "set": {}, "skip": None}
    yield BEGAN_T - 9, "started", {"pid": 1}
    yield BEGAN_T - 8, "attempt_starting", {"attempt": 1, "generation": 1, **plan}
    yield BEGAN_T - 2, "attempt_running", {"attempt": 1}
    yield BEGAN_T - 2, "state", {"state": "running", "reason": None, "detail": None}
    for number in range(int(duration_s / _SAMPLE_S)):
        values: dict[str, object] = {
            "host_mem_gib": round(made.uniform(60, 62), 3),
            "disk_free_gib": round(900 - number * 1e-4, 3),
            "cpu_util": round(made.uniform(10, 20), 1),
            "net_mib_s": round(made.uniform(0, 1), 3),
        }
        for gpu in range(GPUS):
            values[f"gpu_util/{gpu}"] = float(made.randrange(95, 100))
            values[f"gpu_mem_gib/{gpu}"] = round(made.uniform(70, 70.1), 3)
            values[f"gpu_power_w/{gpu}"] = round(made.uniform(600, 690), 2)
            values[f"gpu_temp_c/{gpu}"] = float(made.randrange(60, 66))
            values[f"gpu_clock_mhz/{gpu}"] = 1980.0
            values[f"gpu_throttle/{gpu}"] = 0.0
        yield BEGAN_T + number * _SAMPLE_S, "sample", {"values": values}


def revive(run: RunFolder) -> tuple[float, float]:
    """Seconds from a supervisor's start to its first line, and its peak memory (MiB) by then.

    It is killed after its first ticks, before the run has ended.
    """
    size, began = run.journal.stat().st_size, time.monotonic()
    command = [sys.executable, "-m", "trainer_runtime", "supervise", "."]
    # An empty PATH has no tmux, whose window would stay.
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": ""}
    with subprocess.Popen(command, cwd=run.root, env=environment) as supervisor:
        try:
            while b'"kind":"started"' not in (new := since(run, size)):
                if supervisor.poll() is not None or time.monotonic() > began + _DEADLINE_S:
                    raise SystemExit(f"no supervisor came up: {new[-500:]!r}")
                time.sleep(0.005)
            taken_s, peak_mib = time.monotonic() - began, peak_of(supervisor.pid)
            wait_for_snapshot(run)
        finally:
            supervisor.kill()
    return taken_s, peak_mib


def since(run: RunFolder, size: int) -> bytes:
    with run.journal.open("rb") as file:
        file.seek(size)
        return file.read()


def peak_of(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def wait_for_snapshot(run: RunFolder) -> None:
    """For some seconds: an older runtime writes none."""
    deadline = time.monotonic() + 5.0
    while not (run.root / "supervisor_snapshot.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)


if __name__ == "__main__":
    run_benchmark(measure, steps=Size(50_000, full=5_000_000))
