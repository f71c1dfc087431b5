"""The log parser beside `grep -c` and one regular expression per line, on one core.

Figures are MB/s of the same bytes, taken in turns in the same run; nothing here passes or fails.
The promise: 100 MB/s on every dialect of a fixed shape, 300 on noise, nested or reordered JSON at
least as fast as json.loads line by line.

    python tests/benchmarks/bench_parse.py [--rounds 5] [--megabytes 4]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.core.synthetic_logs import DIALECTS, made_log, noise, reordered_json

from trainer_runtime.core.diagnosis.parse import LogParser

_CHUNK_BYTES = 1 << 20
_NUMBER = rb"[-+]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|nan|inf"
_ONE_REGEX = re.compile(
    rb"(?:step|iter|s|iteration|Epoch)[:= '\"]*(\d+).*?(?:loss|trl)[^\d-]{1,9}(" + _NUMBER + rb")"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=4.0)
    arguments = parser.parse_args()
    size = int(arguments.megabytes * 1e6)
    print(f"{'MB/s':16}{'ours':>8}{'grep -c':>10}{'one regex':>11}")
    for dialect in DIALECTS:
        compare(dialect, of_size(lambda n, d=dialect: made_log(d, n), size), arguments.rounds)
    compare("noise", of_size(noise, size), arguments.rounds)
    compare_json(of_size(reordered_json, size), arguments.rounds)


def of_size(make: Callable[[int], bytes], size: int) -> bytes:
    """A log of about `size` bytes, made by lines."""
    return make(max(1, 1000 * size // len(make(1000))))


def compare(name: str, log: bytes, rounds: int) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(log)
        file.flush()
        ways = {
            "ours": lambda: parse(log),
            "grep": lambda: subprocess.run(
                ["grep", "-c", "loss", file.name], stdout=subprocess.DEVNULL, check=False
            ),
            "regex": lambda: one_regex(log),
        }
        best = best_s(ways, rounds)
    ours, grep, regex = (len(log) / best[way] / 1e6 for way in ways)
    print(f"{name:16}{ours:8.0f}{grep:10.0f}{regex:11.0f}")


def compare_json(log: bytes, rounds: int) -> None:
    lines = log.splitlines()
    ways = {"ours": lambda: parse(log), "json": lambda: [json.loads(line) for line in lines]}
    best = best_s(ways, rounds)
    ours, loads = (len(log) / best[way] / 1e6 for way in ways)
    print(f"{'reordered JSON':16}{ours:8.0f}   json.loads {loads:.0f}: {ours / loads:.2f} x")


def best_s(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(ways, 1e9)
    for _ in range(rounds):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            best[name] = min(best[name], time.perf_counter() - started)
    return best


def parse(log: bytes) -> int:
    """Every step and value as a float, batch by batch, as ingesting takes them."""
    parser, count = LogParser(), 0
    for start in range(0, len(log), _CHUNK_BYTES):
        count += len(parser.feed(log[start : start + _CHUNK_BYTES]))
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
    main()
