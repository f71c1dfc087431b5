"""The log parser beside one regular expression per line, and beside `json.loads`, on one core.

python tests/benchmarks/bench_parse.py [--turns 5] [--megabytes 4]

Real logs are those in the folder of `TRAINMASTER_LOGS`: one after another, then each by itself,
repeated to the same size.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.result import at_least, times_as_fast
from support.benchmarks.turns import rate
from support.core.synthetic_bars import BARS, made_bars
from support.core.synthetic_logs import DIALECTS, made_log, noise, reordered_json

from trainer_runtime.core.diagnosis.parse import LogParser

_CHUNK_BYTES = 1 << 20
_GOAL_MB_S = 20  # faster than anyone waits for; noise, of which logs have most, is passed over
_NUMBER = rb"[-+]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|nan|inf"
_ONE_REGEX = re.compile(
    rb"(?:step|iter|s|iteration|Epoch)[:= '\"]*(\d+).*?(?:loss|trl)[^\d-]{1,9}(" + _NUMBER + rb")"
)


def measure(bench: Benchmark) -> None:
    size = int(bench.sizes["megabytes"] * 1e6)
    for dialect in DIALECTS:
        log = of_size(lambda lines, d=dialect: made_log(d, lines), size)
        compare(bench, dialect, log, goal_mb_s=_GOAL_MB_S)
    compare_real_logs(bench, size)
    for kind in BARS:
        compare(
            bench, f"bars: {kind}", of_size(lambda n, k=kind: made_bars(k, n), size), _GOAL_MB_S
        )
    compare(bench, "noise", of_size(noise, size), goal_mb_s=300)
    log = of_size(reordered_json, size)
    lines, megabytes = log.splitlines(), len(log) / 1e6
    bench.compare(
        "reordered JSON",
        "MB/s",
        ours=mb_s(lambda: parse(log), megabytes),
        peer=("json.loads", mb_s(lambda: [json.loads(line) for line in lines], megabytes)),
        goal=times_as_fast(1),
    )


def compare_real_logs(bench: Benchmark, size: int) -> None:
    paths = _real_logs()
    if paths:
        log = b"".join(path.read_bytes().rstrip(b"\n") + b"\n" for path in paths)
        note = f"{len(paths)} logs of {len(log) / 1000:.4g} kB together, none of them repeated"
        compare(bench, "all real logs, one after another", log, goal_mb_s=_GOAL_MB_S, note=note)
    for path in paths:
        log = path.read_bytes()
        times = max(1, size // len(log))
        note = f"{len(log) / 1000:.3g} kB {times} times: as many trainings that begin again"
        compare(bench, path.name, log * times, goal_mb_s=_GOAL_MB_S, note=note)


def _real_logs() -> list[Path]:
    folder = os.environ.get("TRAINMASTER_LOGS")
    return sorted(path for path in Path(folder).glob("*/*") if path.is_file()) if folder else []


def of_size(make: Callable[[int], bytes], size: int) -> bytes:
    """A log of about `size` bytes, made by lines."""
    return make(max(1, 1000 * size // len(make(1000))))


def mb_s(work: Callable[[], object], megabytes: float) -> Callable[[], float]:
    """MB per second of this process's processor time: of one core, whatever else runs."""
    return rate(work, megabytes, of_processor=True)


def compare(bench: Benchmark, name: str, log: bytes, goal_mb_s: float, *, note: str = "") -> None:
    megabytes = len(log) / 1e6
    bench.compare(
        name,
        "MB/s",
        ours=mb_s(lambda: parse(log), megabytes),
        peer=("one regex", mb_s(lambda: one_regex(log), megabytes)),
        goal=at_least(goal_mb_s),
        note=note,
    )


def parse(log: bytes) -> int:
    """Every step and value as a float, batch by batch, as ingesting takes them."""
    parser, count = LogParser(), 0
    for start in range(0, len(log), _CHUNK_BYTES):
        for batch in parser.feed(log[start : start + _CHUNK_BYTES]).batches:
            count += sum(len(list(column)) for column in batch.columns)
    return count + len(parser.close())


def one_regex(log: bytes) -> int:
    count = 0
    for line in log.split(b"\n"):
        match = _ONE_REGEX.search(line)
        if match is not None:
            float(match[2].replace(b",", b""))
            count += 1
    return count


if __name__ == "__main__":
    run_benchmark(measure, megabytes=Size(4, full=64))
