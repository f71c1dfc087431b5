"""What many runs at Slurm cost here and the login node: half of them run, half of them wait.

The login node is a real sshd; the answers of its `squeue` come from a file: no controller, and no
job, so that this measures our side and counts what a cluster is asked. Requests are the sessions
that sshd reports, each a command or a channel that stays.

    python tests/benchmarks/bench_slurm.py [--turns 3] [--runs 500] [--watched-s 60]
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from many_runs import Place, add_open_runs, sample_run, supervising
from support.backends.ssh_hosts import Sshd
from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.result import at_most, of_peers_time
from support.benchmarks.turns import Sample, command_processor_seconds, command_seconds

from trainmaster.sync.workspace import open_workspace

_TRAINMASTER = [sys.executable, "-m", "trainmaster"]
_FEW = 50
_STARTING_S = 10.0  # of a command that waits
# Of what a login node is asked for in the first minute by one client that keeps watching; four of
# the requests come with the connection.
_MOST_REQUESTS, _MOST_QUESTIONS = 10, 4
_PROGRAM = """\
#!/bin/sh
echo "$0 $*" >> "{folder}/asked.log"
case "$(basename "$0")" in
squeue) cat "{folder}/squeue" ;;
sacct) echo "Slurm accounting storage is disabled" >&2; exit 1 ;;
sbatch) echo 999999 ;;
esac
"""


class SimulatedLogin:
    """A login node whose Slurm is a list in a file."""

    def __init__(self, host: Sshd, folder: Path) -> None:
        self.host, self._folder = host, folder

    def write(self, runs: list[str], waiting: int) -> None:
        """All runs have a job; the last ones wait."""
        now, lines = int(time.time()), []
        for number, run in enumerate(runs, 1):
            if number > len(runs) - waiting:
                lines.append(f"{number}|{run}|PENDING|{now + 600}|N/A||Priority")
            else:
                lines.append(f"{number}|{run}|RUNNING|{now - 600}|{now + 3000}|node1|None")
        (self._folder / "squeue").write_text("\n".join(lines) + "\n")

    @property
    def requests(self) -> int:
        """Commands and channels so far."""
        return self.host.log.read_text().count("Starting session")

    @property
    def connections(self) -> int:
        return self.host.log.read_text().count("Accepted publickey")

    @property
    def questions(self) -> int:
        """Calls of Slurm's programs so far."""
        log = self._folder / "asked.log"
        return len(log.read_text().splitlines()) if log.exists() else 0


def measure(bench: Benchmark) -> None:
    count, watched_s = int(bench.sizes["runs"]), bench.sizes["watched_s"]
    with ExitStack() as stack:
        began_t = time.monotonic()
        few, _ = stack.enter_context(cluster_of(_FEW))
        making_s = (time.monotonic() - began_t) * count / _FEW
        if making_s > bench.left_s() / 2:
            left = f"{bench.left_s():.0f} s were left"
            bench.not_run(f"{count} open runs", f"they take {making_s:.0f} s to make, and {left}")
            return
        many, login = stack.enter_context(cluster_of(count))
        for name, arguments, goal in (
            ("tick", ["tick"], of_peers_time(2.5)),
            ("runs", ["runs"], of_peers_time(1.5)),
            ("status of one run", ["status", "open-3"], of_peers_time(1.5)),
        ):
            bench.compare(
                f"{name}, {count} open runs",
                "s of processor",
                ours=processor_of(many, arguments),
                peer=(f"{_FEW} open runs", processor_of(few, arguments)),
                goal=goal,
                turns=min(3, bench.turns),
            )
        bench.compare(
            f"tick, {count} open runs, start to end", "s", ours=seconds_of(many, ["tick"])
        )
        before = (login.requests, login.questions)
        subprocess.run(
            [*_TRAINMASTER, "tick", "--json"], env=of(many), check=True, capture_output=True
        )
        bench.report("requests of a tick", "", ours=[login.requests - before[0]])
        bench.report("questions to Slurm of a tick", "", ours=[login.questions - before[1]])
        watch(bench, many, login, watched_s)


def watch(bench: Benchmark, home: Path, login: SimulatedLogin, watched_s: float) -> None:
    """Count what a command that waits asks for in a time."""
    if bench.left_s() < watched_s + _STARTING_S:
        bench.not_run("a command that waits", f"it is watched for {watched_s:.0f} s")
        return
    command = [*_TRAINMASTER, "wait", "open-3", "--until", "end", "--timeout", str(int(watched_s))]
    before = (login.connections, login.requests, login.questions)
    subprocess.run([*command, "--json"], env=of(home), check=False, capture_output=True)  # 4
    minutes = watched_s / 60.0
    after = (login.connections, login.requests, login.questions)
    connections, requests, questions = (
        end - begin for end, begin in zip(after, before, strict=True)
    )
    bench.report("connections of a command that waits", "", ours=[connections], goal=at_most(1))
    bench.report(
        "its requests a minute", "", ours=[requests / minutes], goal=at_most(_MOST_REQUESTS)
    )
    bench.report(
        "its questions to Slurm a minute",
        "",
        ours=[questions / minutes],
        goal=at_most(_MOST_QUESTIONS),
    )


@contextmanager
def cluster_of(count: int) -> Iterator[tuple[Path, SimulatedLogin]]:
    """A home with so many open runs at a simulated cluster."""
    os.umask(0o077)
    with tempfile.TemporaryDirectory() as place:
        folder, home = Path(place, "slurm"), Path(place, "home")
        (folder / "bin").mkdir(parents=True)
        for name in ("squeue", "sbatch", "scancel", "scontrol", "sinfo", "sacct"):
            program = folder / "bin" / name
            program.write_text(_PROGRAM.format(folder=folder))
            program.chmod(0o755)
        variables = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        with Sshd(environment=variables) as host:
            login = SimulatedLogin(host, folder)
            begun = _add_runs(home, login, count)
            with supervising(begun):
                yield home, login


def _add_runs(home: Path, login: SimulatedLogin, count: int) -> list[str]:
    record = login.host.record()
    root = Path(record.root)
    address = f"{record.user}@{record.address}:{record.port}"
    options = ["--key", str(record.key), "--root", str(root), "--launcher", "slurm"]
    add = [*_TRAINMASTER, "hosts", "add", "cluster", address, *options]
    subprocess.run(add, env=of(home), check=True, capture_output=True)
    with open_workspace({"TRAINMASTER_HOME": str(home)}) as workspace:
        sample = asyncio.run(sample_run(workspace, home.with_name("data")))
        place = Place("cluster", "slurm", root, waiting=count // 2)
        begun = add_open_runs(workspace, sample, count, place)
        names = [run_id for run_id, _, _ in workspace.control.open_runs("cluster")]
    waiting = [name for name in names if str(root / "runs" / name) not in begun]
    login.write([*(Path(folder).name for folder in begun), *waiting], len(waiting))
    subprocess.run([*_TRAINMASTER, "tick"], env=of(home), check=True, capture_output=True)
    return begun


def of(home: Path) -> dict[str, str]:
    return {**os.environ, "TRAINMASTER_HOME": str(home)}


def seconds_of(home: Path, arguments: list[str]) -> Sample:
    return command_seconds([*_TRAINMASTER, *arguments, "--json"], of(home))


def processor_of(home: Path, arguments: list[str]) -> Sample:
    return command_processor_seconds([*_TRAINMASTER, *arguments, "--json"], of(home))


if __name__ == "__main__":
    run_benchmark(measure, runs=Size(500, full=500), watched_s=Size(60, full=120))
