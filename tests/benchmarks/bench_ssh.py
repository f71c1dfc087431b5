"""Over SSH: how soon a launch starts the trainer, and how fast trees travel beside scp.

Everything against a real sshd on loopback, in turn and in the same run. Prints seconds and ratios;
nothing here passes or fails.

    python tests/benchmarks/bench_ssh.py [--rounds 3] [--mib 256]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.backends.ssh_hosts import Sshd
from support.runs.running_run import small_spec

from trainmaster.backends.hosts.ssh import SshHost
from trainmaster.backends.hosts.trees import put_tree
from trainmaster.runs.launch import launch
from trainmaster.runs.wait import wait_for_event
from trainmaster.sync.workspace import open_workspace
from trainmaster.words.paths import Home

_SMALL_FILES, _SMALL_BYTES = 3000, 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mib", type=int, default=256)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tm-bench-") as folder, Sshd() as sshd:
        asyncio.run(_launches(Path(folder), sshd, options.rounds))
        for name, tree in _trees(Path(folder), options.mib).items():
            _uploads(name, tree, Path(folder), sshd, options.rounds)


async def _launches(folder: Path, sshd: Sshd, rounds: int) -> None:
    """From the call to the moment at which hold has started the trainer; the first one connects."""
    python = f"{{python: {sys.executable}}}"
    spec = small_spec(folder, host="gpu1", environment=python, steps="20")
    with open_workspace({"TRAINMASTER_HOME": str(folder / "home")}) as workspace:
        workspace.control.put_host(sshd.record("gpu1"), t=0.0)
        took: list[float] = []
        for _ in range(rounds + 1):
            began = time.time()
            run = (await launch(workspace, spec)).run_id
            await wait_for_event(workspace, run, until=["end"], timeout_s=120.0)
            root = Path(workspace.control.folder(workspace.control.run(run)))
            took.append((root / "attempts/1/process.json").stat().st_mtime - began)
        await workspace.disconnect()
    warm = statistics.median(took[1:])
    print(f"launch until the trainer is started: cold {took[0]:.2f} s, warm {warm:.2f} s")


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


def _uploads(name: str, tree: Path, folder: Path, sshd: Sshd, rounds: int) -> None:
    ratios = []
    for _ in range(rounds):
        ours = _timed(lambda: asyncio.run(_send(tree, folder, sshd)), sshd)
        scp = _timed(lambda: subprocess.run(_scp(tree, sshd), check=True), sshd)
        ratios.append(ours / scp)
    print(f"tree of {name}: {statistics.median(ratios):.2f} times scp's time ({scp:.2f} s)")


def _timed(work: Callable[[], object], sshd: Sshd) -> float:
    target = sshd.home / "target"
    shutil.rmtree(target, ignore_errors=True)
    os.sync()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


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
    main()
