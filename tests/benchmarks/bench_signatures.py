"""The failure signatures over a log of 1 GB, beside `grep -c`, on one core.

The log is made of pieces in a temporary folder and removed; nothing here passes or fails. The
promise: 5 s for 1 GB.

    python tests/benchmarks/bench_signatures.py [--gigabytes 1.0] [--rounds 1]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.core.synthetic_logs import DIALECTS, made_log, noise

from trainer_runtime.core.diagnosis.signatures import SignatureScan, find

_CHUNK_BYTES = 1 << 20
_FAILURE = b"RuntimeError: CUDA error: an illegal memory access was encountered\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    mixed = b"".join(made_log(dialect, 4_000) for dialect in DIALECTS)
    logs = {
        "nanoGPT": made_log("nanogpt", 60_000),
        "all dialects": mixed,
        "one line in ten noise": mixed + noise(len(DIALECTS) * 400),
        "noise alone": noise(40_000),
    }
    print(f"{'':24}{'GB':>6}{'ours':>9}{'grep -c':>9}{'MB/s':>7}{'found':>22}")
    for number, (name, piece) in enumerate(logs.items()):
        # The whole promise is measured once; the others report the rate from a tenth.
        share = 1.0 if number == 0 else 0.1
        compare(name, piece, int(arguments.gigabytes * share * 1e9), arguments.rounds)


def compare(name: str, piece: bytes, size: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        with log.open("wb") as file:
            for _ in range(max(1, size // len(piece))):
                file.write(piece)
            file.write(_FAILURE)
        size = log.stat().st_size
        found: list[str] = []
        grep = best_s(lambda: grep_count(log), rounds)
        ours = best_s(lambda: found.extend(scan(log)), rounds)
    codes = ",".join(dict.fromkeys(found)) or "nothing"
    print(f"{name:24}{size / 1e9:6.2f}{ours:8.2f}s{grep:8.2f}s{size / ours / 1e6:7.0f}{codes:>22}")


def best_s(way: Callable[[], object], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        way()
        best = min(best, time.perf_counter() - started)
    return best


def grep_count(log: Path) -> None:
    subprocess.run(["grep", "-c", "out of memory", str(log)], capture_output=True, check=False)


def scan(log: Path) -> list[str]:
    signatures = SignatureScan()
    with log.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            signatures.feed(chunk)
    signatures.finish()
    return [finding.code for finding in find(signatures.result())]


if __name__ == "__main__":
    main()
