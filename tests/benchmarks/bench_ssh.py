"""Over SSH: how soon a launch starts the trainer, and how fast trees travel beside scp.

Everything against a real sshd on loopback; needs root.

    python tests/benchmarks/bench_ssh.py [--turns 3] [--mib 128]
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.backends.ssh_hosts import Sshd
from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.turns import Sample
from support.runs.running_run import small_spec

from trainmaster.backends.hosts.ssh import SshHost
from trainmaster.backends.hosts.trees import put_tree
from trainmaster.home.paths import Home
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.launch.launch import launch
from trainmaster.sync.workspace import open_workspace

_SMALL_FILES, _SMALL_BYTES = 3000, 2000


def measure(bench: Benchmark) -> None:
    with tempfile.TemporaryDirectory() as folder, Sshd() as sshd:
        cold, *warm = asyncio.run(_launches(Path(folder), sshd, bench.turns))
        note = f"the first one, which connects, took {cold:.2f} s"
        bench.report("launch until the trainer is started", "s", ours=warm, note=note)
        for name, tree in _trees(Path(folder), int(bench.sizes["mib"])).items():
            bench.compare(
                name,
                "s",
                ours=_timed(lambda tree=tree: asyncio.run(_send(tree, Path(folder), sshd)), sshd),
                peer=(
                    "scp",
                    _timed(lambda tree=tree: subprocess.run(_scp(tree, sshd), check=True), sshd),
                ),
                turns=min(3, bench.turns),
            )


async def _launches(folder: Path, sshd: Sshd, turns: int) -> list[float]:
    """Seconds from the call to the moment at which hold has started the trainer."""
    python = f"{{python: {sys.executable}}}"
    spec = small_spec(folder, host="gpu1", environment=python, steps="20")
    took: list[float] = []
    with open_workspace({"TRAINMASTER_HOME": str(folder / "home")}) as workspace:
        workspace.control.put_host(sshd.record("gpu1"), t=0.0)
        for _ in range(turns + 1):
            began = time.time()
            run = (await launch(workspace, spec)).run_id
            await wait_for_event(workspace, run, until=["end"], timeout_s=120.0)
            root = Path(workspace.control.folder(workspace.control.run(run)))
            took.append((root / "attempts/1/process.json").stat().st_mtime - began)
        await workspace.disconnect()
    return took


def _trees(folder: Path, mib: int) -> dict[str, Path]:
    large, small = folder / "large", folder / "small"
    large.mkdir()
    small.mkdir()
    for name in ("a", "b"):
        with (large / name).open("wb") as file:
            for _ in range(mib // 2):
                file.write(os.urandom(1 << 20))
    for number in range(_SMALL_FILES):
        (small / f"{number}.txt").write_bytes(os.urandom(_SMALL_BYTES))
    return {f"{mib} MiB in 2 files": large, f"{_SMALL_FILES:,} small files": small}


def _timed(work: Callable[[], object], sshd: Sshd) -> Sample:
    """Seconds of `work`, which creates the folder `target`."""

    def sample() -> float:
        shutil.rmtree(sshd.home / "target", ignore_errors=True)
        os.sync()
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return sample


async def _send(tree: Path, folder: Path, sshd: Sshd) -> None:
    host = SshHost(sshd.record("gpu1"), Home(folder / "home"))
    try:
        await put_tree(host, tree, f"{sshd.home}/target")
    finally:
        await host.disconnect()


def _scp(tree: Path, sshd: Sshd) -> list[str]:
    options = ["-q", "-r", "-F", "none", "-P", str(sshd.port), "-i", str(sshd.key)]
    options += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    options += ["-o", "LogLevel=ERROR"]
    return ["scp", *options, str(tree), f"{sshd.user}@{sshd.address}:{sshd.home}/target"]


if __name__ == "__main__":
    run_benchmark(measure, mib=Size(128, full=1024))
