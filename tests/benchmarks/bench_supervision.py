"""What monitoring a training costs beside it: supervisor, telemetry, status page, follower.

Processor time as a share of a core while a real training runs.

    python tests/benchmarks/bench_supervision.py [--seconds 20]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.result import at_most
from support.benchmarks.turns import own_processor_s, processor_s
from support.runs.running_run import kill_processes, processes_of, small_spec

from trainer_runtime.host.files.layout import RunFolder
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.launch.launch import launch
from trainmaster.runs.status.status import get_status
from trainmaster.sync.workspace import Workspace, open_workspace

_GOAL = at_most(1)


def measure(bench: Benchmark) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        try:
            with open_workspace({"TRAINMASTER_HOME": str(home)}) as workspace:
                asyncio.run(watch(bench, workspace, Path(folder)))
        finally:
            kill_processes(home / "local")


async def watch(bench: Benchmark, workspace: Workspace, folder: Path) -> None:
    model = "{n_layer: 4, n_head: 4, d_model: 128}"
    spec = small_spec(folder, model=model, batch="{tokens: 2048}", steps="1000000")
    run = (await launch(workspace, spec)).run_id
    await wait_for_event(workspace, run, until=["step:30"], timeout_s=120)
    box = RunFolder(Path(workspace.control.folder(workspace.control.run(run))))
    pids = processes_of(box)
    spent: dict[str, list[float]] = {name: [] for name in (*pids, "follower and wait")}
    for _ in range(bench.turns):
        before = {name: processor_s(pid) for name, pid in pids.items()}
        own, started = own_processor_s(), time.monotonic()
        seconds = bench.sizes["seconds"] / bench.turns
        await wait_for_event(workspace, run, until=["end"], timeout_s=seconds)
        lasted = time.monotonic() - started
        for name, pid in pids.items():
            spent[name].append(100 * (processor_s(pid) - before[name]) / lasted)
        spent["follower and wait"].append(100 * (own_processor_s() - own) / lasted)
    steps = (await get_status(workspace, run)).step
    for name, shares in spent.items():
        goal = None if name == "trainer" else _GOAL
        note = f"{steps} steps so far" if name == "trainer" else ""
        bench.report(name, "% of a core", ours=shares, goal=goal, note=note)


if __name__ == "__main__":
    run_benchmark(measure, seconds=Size(20, full=120))
