"""What watching a training costs beside it: supervisor, telemetry, status page, follower.

Prints processor time as shares of the trainer's own in the same run; nothing here passes or fails.

    python tests/benchmarks/bench_supervision.py [--seconds 20]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.runs.running_run import kill_processes, processes_of, small_spec

from trainer_runtime.box.files.layout import RunFolder
from trainmaster.runs.launch import launch
from trainmaster.runs.status import get_status
from trainmaster.runs.wait import wait_for_event
from trainmaster.sync.workspace import Workspace, open_workspace

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        try:
            with open_workspace({"TRAINMASTER_HOME": str(home)}) as workspace:
                asyncio.run(measure(workspace, Path(folder), arguments.seconds))
        finally:
            kill_processes(home / "local")


async def measure(workspace: Workspace, folder: Path, seconds: float) -> None:
    model = "{n_layer: 4, n_head: 4, d_model: 128}"
    spec = small_spec(folder, model=model, batch="{tokens: 2048}", steps="1000000")
    run = (await launch(workspace, spec)).run_id
    await wait_for_event(workspace, run, until=["step:30"], timeout_s=120)
    box = RunFolder(Path(workspace.control.folder(workspace.control.run(run))))
    pids = processes_of(box)
    before = {name: processor_s(pid) for name, pid in pids.items()}
    own_before, started = own_processor_s(), time.monotonic()
    await wait_for_event(workspace, run, until=["end"], timeout_s=seconds)
    lasted = time.monotonic() - started
    spent = {name: processor_s(pid) - before[name] for name, pid in pids.items()}
    follower = own_processor_s() - own_before
    trainer = spent["trainer"]
    steps = (await get_status(workspace, run)).step
    print(f"{lasted:.0f} s of training, {steps} steps so far, trainer {trainer:.1f} s of processor")
    for name, used in (*spent.items(), ("follower and wait", follower)):
        if name != "trainer":
            share, core = used / trainer, used / lasted
            print(f"{name}: {used:.2f} s, {share:.2%} of the trainer's, {core:.2%} of a core")


def processor_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def own_processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
