"""What following many runs costs on each side, how soon a line is here, how soon a log's end.

Runs are followed through a real sshd (with `--here 1` through a child process), beside two lines a
second of each; their mirrors are compared with the originals at the end. Of an earlier checkout,
`--before`, its own script says what following costs here.

    python tests/benchmarks/bench_following.py [--runs 200] [--seconds 15] [--here 0] [--before DIR]
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.result import at_most
from support.benchmarks.turns import own_processor_s, processor_s
from support.sync.followed_run import HOST, FakeRun, FollowedWorkspace

from trainer_runtime.core.policy.heartbeat import INGEST_EVERY_S
from trainmaster.backends.follower import Followed
from trainmaster.backends.hosts import Host, LocalHost
from trainmaster.home.paths import Home
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.log.logs import read_log
from trainmaster.sync.follow import POLL_S, pause_s
from trainmaster.sync.workspace import Workspace

_LOG_BYTES = 1 << 30
_TAIL_BYTES = 64 << 10
_WATCHED = 10
_WARM_UP_S = 3.0
_BESIDE_S = 20.0  # to start and end
EVENTS, JOURNAL = "attempts/1/events.jsonl", "supervisor.jsonl"
# Writes the lines of a training, two a second, to every run named on standard input; each one's
# loss is the moment at which it was written.
_WRITING = """
import json, os, sys, time
folders, seconds = sys.stdin.read().splitlines(), float(sys.argv[1])
begin, pages = time.time(), b"x" * 3000
for beat in range(int(2 * seconds)):
    for number, folder in enumerate(folders):
        due = begin + beat / 2 + number / len(folders) / 2
        time.sleep(max(0.0, due - time.time()))
        values = {"loss": time.time(), "lr": 1e-3, "grad_norm": 1.5, "tokens": 8192 * beat,
                  "tokens_per_s": 16384.5, "step_time_s": 0.5, "mfu": 0.41}
        line = {"v": 1, "seq": beat, "t": time.time(), "kind": "metric", "step": beat + 1,
                "values": values}
        with open(folder + "/attempts/1/events.jsonl", "a") as file:
            file.write(json.dumps(line) + "\\n")
        if (beat + number) % 20 == 0:
            line = {"v": 1, "seq": beat, "t": time.time(), "kind": "sample", "values": {}}
            with open(folder + "/supervisor.jsonl", "a") as file:
                file.write(json.dumps(line) + "\\n")
        if beat % 2 == 0:
            for name in ("state.json", "training_status.md", "checkpoints_index.json"):
                with open(folder + "/" + name, "wb") as file:
                    file.write(pages)
"""

# Prints how late each line of the mirrors named on standard input came to be there, of those that
# were written from a certain time on.
_WATCHING = """
import json, os, sys, time
paths, begin = sys.stdin.read().splitlines(), float(sys.argv[1])
seen = dict.fromkeys(paths, 0)
while True:
    for path in paths:
        if os.path.exists(path) and os.stat(path).st_size > seen[path]:
            now = time.time()
            with open(path, "rb") as file:
                file.seek(seen[path])
                data = file.read()
            seen[path] += len(data)
            written = [json.loads(line)["t"] for line in data.splitlines()]
            print(*(now - t for t in written if t >= begin), flush=True)
    time.sleep(0.02)
"""

Work = Callable[["Watch"], Awaitable[None]]


@dataclass(frozen=True)
class Place:
    """Where runs lie, and the processor time that this has cost there so far."""

    host: Host
    root: Path
    spent_s: Callable[[], float]


@dataclass
class Watch:
    """A bench under way: its runs, and how long they are followed, in how many turns."""

    workspace: Workspace
    runs: list[FakeRun]
    turn_s: float
    turns: int

    @contextmanager
    def delays_s(self) -> Iterator[list[float]]:
        """Inside, another process watches some of the mirrors; afterwards, how late lines were."""
        found: list[float] = []
        watched = self.runs[:: max(1, len(self.runs) // _WATCHED)]
        with subprocess.Popen(
            [sys.executable, "-c", _WATCHING, str(time.time() + _WARM_UP_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as watcher:
            assert watcher.stdin is not None and watcher.stdout is not None
            watcher.stdin.write("\n".join(str(run.mirror.path(EVENTS)) for run in watched).encode())
            watcher.stdin.close()
            try:
                yield found
            finally:
                watcher.terminate()
                found += sorted(map(float, watcher.stdout.read().split()))

    def is_complete(self) -> bool:
        return all(run.mirror.size(EVENTS) == run.path(EVENTS).stat().st_size for run in self.runs)

    def compared(self) -> str:
        """What is missing, doubled or other than what was written, over all runs."""
        names = (EVENTS, JOURNAL)
        other = sum(
            run.mirrored(name) != run.path(name).read_bytes() for run in self.runs for name in names
        )
        lines = sum(run.path(EVENTS).read_bytes().count(b"\n") for run in self.runs)
        return f"{lines} lines, mirrors that differ from their originals: {other}"


def measure(bench: Benchmark) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder, "home"))
        with (nearby if bench.sizes["here"] else over_sshd)(home) as place:
            seconds = bench.sizes["seconds"]
            asyncio.run(
                follow(bench, "following", copy, place, home, (seconds / bench.turns, bench.turns))
            )
            # As long as from one ingest of all runs to the next, so that each turn has one; the
            # first turn also has what comes once.
            turns = (INGEST_EVERY_S, max(3, round(seconds / INGEST_EVERY_S)))
            asyncio.run(follow(bench, "following and ingest", serve, place, home, turns))
            asyncio.run(read_ends(bench, place, Path(folder)))


@contextmanager
def nearby(home: Home) -> Iterator[Place]:
    yield Place(LocalHost(HOST, home.local_root), home.local_root, children_s)


@contextmanager
def over_sshd(home: Home) -> Iterator[Place]:
    from support.backends.ssh_hosts import Sshd

    from trainmaster.backends.hosts.ssh import SshHost

    with Sshd() as box:
        root = box.home / "trainmaster"
        host = SshHost(box.record(HOST), home)
        yield Place(host, root, lambda: sum(map(spent_s, box.processes)))


async def follow(
    bench: Benchmark, name: str, work: Work, place: Place, home: Home, turns: tuple[float, int]
) -> None:
    """Follow in turns of so many seconds while lines are written; report what that has cost."""
    needs_s = turns[0] * turns[1] + _BESIDE_S
    if bench.left_s() < needs_s:
        bench.not_run(name, f"it takes {needs_s:.0f} s, and {bench.left_s():.0f} s were left")
        return
    workspace = FollowedWorkspace(Home(home.root / name.replace(" ", "-")), place.host)
    runs = [
        FakeRun(workspace, place.root / "runs" / f"{name.replace(' ', '-')}-{number}-abcdef")
        for number in range(int(bench.sizes["runs"]))
    ]
    watch = Watch(workspace, runs, *turns)
    with watch.delays_s() as delays_s:
        here, there = await measured(watch, work, place)
    title = f"{name}, {len(runs)} runs"
    late_s = delays_s[int(len(delays_s) * 0.95)]
    sizes = bench.sizes["runs"], bench.sizes["seconds"]
    before = earlier_shares(bench.before, *sizes).get(name, ()) if bench.before else ()
    bench.report(f"{title}: here", "% of a core", ours=here, before=before, goal=at_most(2))
    bench.report(f"{title}: on the host", "% of a core", ours=there, goal=at_most(2))
    bench.report(
        f"{title}: until a line is here",
        "s",
        ours=[delays_s[len(delays_s) // 2]],
        goal=at_most(0.5),
        note=f"95 % of lines within {late_s:.3f} s; {watch.compared()}",
    )
    workspace.close()


@cache
def earlier_shares(checkout: Path, runs: float, seconds: float) -> dict[str, tuple[float, ...]]:
    """The shares of a core that an earlier checkout takes here, by what it does."""
    tree = checkout.resolve()
    script = str(tree / "tests/benchmarks/bench_following.py")
    found = subprocess.run(
        [sys.executable, script, "--runs", f"{runs:g}", "--seconds", f"{seconds:g}"],
        env={**os.environ, "PYTHONPATH": f"{tree / 'server'}{os.pathsep}{tree}"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    shares = re.findall(r"^(following[\w-]*), .*: here ([\d.]+)% of", found.stdout, re.MULTILINE)
    return {name.replace("-", " "): (float(share),) for name, share in shares}


async def measured(watch: Watch, work: Work, place: Place) -> tuple[list[float], list[float]]:
    """The shares of a core that each side took, turn by turn."""
    folders = "\n".join(str(run.folder) for run in watch.runs)
    lasts_s = watch.turns * watch.turn_s + 2 * _WARM_UP_S
    here, there = [], []
    with subprocess.Popen(
        [sys.executable, "-c", _WRITING, str(lasts_s)], stdin=subprocess.PIPE
    ) as writer:
        assert writer.stdin is not None
        writer.stdin.write(folders.encode())
        writer.stdin.close()
        following = asyncio.create_task(work(watch))
        try:
            await asyncio.sleep(_WARM_UP_S)
            for _ in range(watch.turns):
                own, theirs, began = own_processor_s(), place.spent_s(), time.monotonic()
                await asyncio.sleep(watch.turn_s)
                lasted = time.monotonic() - began
                here.append(100 * (own_processor_s() - own) / lasted)
                there.append(100 * (place.spent_s() - theirs) / lasted)
            await asyncio.to_thread(writer.wait)
        finally:
            writer.kill()
    while not watch.is_complete():
        await asyncio.sleep(POLL_S)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await place.host.disconnect()
    return here, there


async def copy(watch: Watch) -> None:
    """Nothing but mirrors."""
    placements = {run.run_id: Followed(run.mirror, lambda: None, over=False) for run in watch.runs}
    async with watch.workspace.backend(HOST).follower() as follower:
        while True:
            before_s = time.process_time()
            news = await follower.copy_new(placements)
            rests_s = pause_s(time.process_time() - before_s)
            await asyncio.sleep(0 if news.more else rests_s)


async def serve(watch: Watch) -> None:
    """As `trainmaster wait` does: into the database too."""
    await wait_for_event(watch.workspace, watch.runs[0].run_id, timeout_s=3600)


async def read_ends(bench: Benchmark, place: Place, folder: Path) -> None:
    """The last lines of a large log, once it is mirrored, and of one that lies on the host."""
    line = b"step 1234 | loss 2.3456 | lr 1.0e-03 | 12345 tokens/s\n"
    log = place.root / "large.log"
    with log.open("wb") as file:
        for _ in range(_LOG_BYTES // (1 << 20)):
            file.write(line * ((1 << 20) // len(line)))
    workspace = Workspace(Home(folder / "empty"))
    size = log.stat().st_size

    async def read() -> None:
        assert len(await place.host.read(str(log), size - _TAIL_BYTES, _TAIL_BYTES)) == _TAIL_BYTES

    here, there = [], []
    for _ in range(bench.turns):
        here.append(await taken_ms(lambda: read_log(workspace, str(log), limit=100)))
        there.append(await taken_ms(read))
    workspace.close()
    await place.host.disconnect()
    name = f"the end of a log of {size / 2**30:.2f} GiB"
    bench.report(f"{name}, mirrored", "ms", ours=here)
    bench.report(f"{name}, 64 KiB from the host", "ms", ours=there)


async def taken_ms(work: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await work()
    return 1e3 * (time.perf_counter() - started)


def spent_s(pid: int) -> float:
    """The processor time of a process; nothing of one that has just ended."""
    try:
        return processor_s(pid)
    except OSError:
        return 0.0


def children_s() -> float:
    """The processor time of the followers among this process's children."""
    pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    followers = [pid for pid in pids if b"follow" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return sum(processor_s(int(pid)) for pid in followers)


if __name__ == "__main__":
    run_benchmark(
        measure, runs=Size(200, full=200), seconds=Size(15, full=60), here=Size(0, full=0)
    )
