"""What another user waits for while somebody opens connections or sessions, or reads without end.

A server with 1,024 descriptors, of a home with `live` runs that report and `ended` ones, answers
`overview` all the while: beside `connections` that never end their header, `sessions` of one token
and `reads` of a sparse file of 2 TiB. Then memory and descriptors are those of before.

    python tests/benchmarks/bench_crowds.py [--live 200] [--ended 2000] [--connections 10000]
        [--sessions 1000] [--reads 8]
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx
from many_runs import home_of
from support.attack.endless_files import ENDLESS
from support.attack.served import (
    DESCRIPTORS,
    HALF_A_REQUEST,
    HEADERS,
    ServedProcess,
    half_open_crowd,
    served_process,
    until,
)
from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.result import at_most
from support.mcp.http_server import settings, token_for
from support.session.child_processes import descendants

_BEFORE = 20
_HELD_S = 10.0
_READS = (
    ("tail_log", {"grep": "l[o]ss"}),
    ("tail_log", {"cursor": "l1.file.0.0", "limit": 1000}),
    ("query_metrics", {}),
    ("diagnose", {}),
)


def measure(bench: Benchmark) -> None:
    live, ended = int(bench.sizes["live"]), int(bench.sizes["ended"])
    folder = tempfile.TemporaryDirectory()
    with folder as place, home_of(Path(place, "home"), ended, live) as home:
        settings(home.root, "server: {requests_per_minute: 1000000}\n")
        environment = {"TRAINMASTER_HOME": str(home.root)}
        harming, other = (token_for(environment, name, "read") for name in ("mal", "ann"))
        command = ["mcp", "--http", "--port", "0"]
        with served_process(command, environment, Path(place)) as served:
            before_s = [served.overview_s(other) for _ in range(_BEFORE)]
            bench.report("overview before, worst", "s", ours=[max(before_s[1:])], goal=at_most(1))
            measure_crowds(bench, served, harming, other, Path(place))


def measure_crowds(
    bench: Benchmark, served: ServedProcess, harming: str, other: str, folder: Path
) -> None:
    descriptors, memory_mib = served.descriptors(), served.memory_mib()
    connections, sessions, reads = (
        int(bench.sizes[name]) for name in ("connections", "sessions", "reads")
    )
    crowds: dict[str, Callable[[], None]] = {
        f"{connections:,} half-open connections": lambda: hold_connections(served, connections),
        f"{sessions:,} sessions of a token": lambda: open_sessions(served, harming, sessions),
        f"{reads} endless reads": lambda: read_endlessly(served, harming, reads, folder),
    }
    for name, crowd in crowds.items():
        with served.overviews_meanwhile(other) as waits_s:
            crowd()
        median = f"{len(waits_s)} calls, median {statistics.median(waits_s):.2f} s"
        line = f"overview beside {name}, worst"
        bench.report(line, "s", ours=[max(waits_s)], goal=at_most(1), note=median)
    until(lambda: served.descriptors() <= descriptors and not descendants(served.process.pid))
    more = served.descriptors() - descriptors
    note = f"{descriptors} before, of {DESCRIPTORS}"
    bench.report("descriptors more afterwards", "", ours=[more], goal=at_most(4), note=note)
    more_mib = served.memory_mib() - memory_mib
    note = f"{memory_mib:.0f} MiB before"
    bench.report("memory more afterwards", "MiB", ours=[more_mib], goal=at_most(48), note=note)
    bench.report("end after SIGTERM", "s", ours=[served.ended_s()], goal=at_most(5))


def hold_connections(served: ServedProcess, count: int) -> None:
    with half_open_crowd(served.port, count, HALF_A_REQUEST):
        time.sleep(_HELD_S)


def open_sessions(served: ServedProcess, token: str, count: int) -> None:
    with httpx.Client(headers=HEADERS, timeout=60) as http:
        for _ in range(count):
            assert served.open_session(http, token).status_code in {200, 429}


def read_endlessly(served: ServedProcess, token: str, count: int, folder: Path) -> None:
    """Reads that are given up after a while, as by a client that has closed."""
    endless = folder / "endless.log"
    ENDLESS["sparse"](endless, random.Random(0))

    def read(number: int) -> None:
        tool, more = _READS[number % len(_READS)]
        target: object = [str(endless)] if tool == "query_metrics" else str(endless)
        with suppress(TimeoutError):
            served.call(token, tool, {"run_id": target, **more}, within_s=_HELD_S)

    with ThreadPoolExecutor(count) as reading:
        list(reading.map(read, range(count)))


if __name__ == "__main__":
    run_benchmark(
        measure,
        live=Size(200, full=200),
        ended=Size(2000, full=2000),
        connections=Size(10_000, full=10_000),
        sessions=Size(1000, full=1000),
        reads=Size(8, full=8),
    )
