"""What following many runs costs on each side, how soon a line is here, how soon a log's end.

Runs are followed through a real sshd, beside two lines a second of each; their mirrors are compared
with the originals at the end. Prints shares of a core and seconds; nothing here passes or fails.

    python tests/benchmarks/bench_following.py [--runs 200] [--seconds 20] [--here]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench_supervision import own_processor_s, processor_s
from support.sync.followed_run import HOST, FakeRun, FollowedWorkspace

from trainmaster.backends.follower import Followed
from trainmaster.backends.hosts import Host, LocalHost
from trainmaster.runs.logs import read_log
from trainmaster.sync.follow import POLL_S, following
from trainmaster.sync.workspace import Workspace
from trainmaster.words.paths import Home

_LOG_BYTES = 1 << 30
_TAIL_BYTES = 64 << 10
_WATCHED = 10
_WARM_UP_S = 3.0
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

Work = Callable[["Watch"], Awaitable[None]]


@dataclass(frozen=True)
class Place:
    """Where runs lie, and the processor time that this has cost there so far."""

    host: Host
    root: Path
    spent_s: Callable[[], float]


@dataclass
class Watch:
    """A bench under way: its runs, for how long, and how late lines came to be here."""

    workspace: Workspace
    runs: list[FakeRun]
    seconds: float
    delays_s: list[float] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)

    def poll(self) -> None:
        """Note the delays of what is newly mirrored of some of the runs."""
        now = time.time()
        for run in self.runs[:: max(1, len(self.runs) // _WATCHED)]:
            data = run.mirror.read(EVENTS, self.seen.get(run.run_id, 0), 1 << 20)
            self.seen[run.run_id] = self.seen.get(run.run_id, 0) + len(data)
            self.delays_s += [now - json.loads(line)["t"] for line in data.splitlines()]

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--here", action="store_true", help="without sshd: a child process")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder, "home"))
        with (nearby if arguments.here else over_sshd)(home) as place:
            for name, work in (("following", copy), ("following-and-ingest", serve)):
                workspace = FollowedWorkspace(Home(home.root / name), place.host)
                runs = [
                    FakeRun(workspace, place.root / "runs" / f"{name}-{number}-abcdef")
                    for number in range(arguments.runs)
                ]
                watch = Watch(workspace, runs, arguments.seconds)
                asyncio.run(measure(name, watch, work, place))
                workspace.close()
            asyncio.run(read_ends(place, Path(folder)))


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
        yield Place(host, root, lambda: sum(map(processor_s, box.processes)))


async def measure(name: str, watch: Watch, work: Work, place: Place) -> None:
    """Follow for so long while lines are written, and print what that has cost."""
    folders = "\n".join(str(run.folder) for run in watch.runs)
    lasts_s = watch.seconds + 2 * _WARM_UP_S
    with subprocess.Popen(
        [sys.executable, "-c", _WRITING, str(lasts_s)], stdin=subprocess.PIPE
    ) as writer:
        assert writer.stdin is not None
        writer.stdin.write(folders.encode())
        writer.stdin.close()
        following = asyncio.create_task(work(watch))
        await asyncio.sleep(_WARM_UP_S)
        watch.delays_s.clear()
        own, there, began = own_processor_s(), place.spent_s(), time.monotonic()
        await asyncio.sleep(watch.seconds)
        own, there = own_processor_s() - own, place.spent_s() - there
        lasted = time.monotonic() - began
        delays_s = sorted(watch.delays_s)
        await asyncio.to_thread(writer.wait)
    while not watch.is_complete():
        await asyncio.sleep(POLL_S)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await place.host.disconnect()
    p50, p95 = (delays_s[int(len(delays_s) * share)] for share in (0.5, 0.95))
    print(f"{name}, {len(watch.runs)} runs: here {own / lasted:.2%} of a core", end=", ")
    print(f"there {there / lasted:.2%}; a line is here after {p50:.3f} s, 95 % {p95:.3f} s")
    print(f"{name}: {watch.compared()}")


async def copy(watch: Watch) -> None:
    """Nothing but mirrors."""
    placements = {run.run_id: Followed(run.mirror, lambda: None, over=False) for run in watch.runs}
    async with watch.workspace.backend(HOST).follower() as follower:
        while True:
            news = await follower.copy_new(placements)
            watch.poll()
            await asyncio.sleep(0 if news.more else POLL_S)


async def serve(watch: Watch) -> None:
    """As `trainmaster wait` does: into the database too."""
    async with following(watch.workspace, HOST):
        while True:
            watch.poll()
            await asyncio.sleep(0.05)


async def read_ends(place: Place, folder: Path) -> None:
    """The last lines of a large log, once it is mirrored, and of one that lies on the host."""
    line = b"step 1234 | loss 2.3456 | lr 1.0e-03 | 12345 tokens/s\n"
    log = place.root / "large.log"
    with log.open("wb") as file:
        for _ in range(_LOG_BYTES // (1 << 20)):
            file.write(line * ((1 << 20) // len(line)))
    workspace = Workspace(Home(folder / "empty"))
    here = await best_s(lambda: read_log(workspace, str(log), limit=100))
    workspace.close()
    size = log.stat().st_size

    async def read() -> None:
        assert len(await place.host.read(str(log), size - _TAIL_BYTES, _TAIL_BYTES)) == _TAIL_BYTES

    there = await best_s(read)
    await place.host.disconnect()
    print(f"the end of a log of {size / 2**30:.2f} GiB: mirrored {here * 1e3:.1f} ms", end=", ")
    print(f"64 KiB from the host {there * 1e3:.1f} ms")


async def best_s(work: Callable[[], Awaitable[object]], rounds: int = 5) -> float:
    """The fewest seconds of a few calls."""
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - started)
    return min(taken)


def children_s() -> float:
    """The processor time of the followers among this process's children."""
    pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    followers = [pid for pid in pids if b"follow" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return sum(processor_s(int(pid)) for pid in followers)


if __name__ == "__main__":
    main()
