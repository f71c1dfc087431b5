"""`diagnose FILE` over a log of 1 GB: signatures, series and detectors in one pass, on one core.

    python tests/benchmarks/bench_diagnose.py [--gigabytes 1]

Beside it what its parts take by themselves. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from made_logs import made_log, noise

from trainer_runtime.core.parse import LogParser
from trainer_runtime.core.signatures import SignatureScan
from trainmaster.diagnosis.of_file import diagnose_file

_CHUNK_BYTES = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.0)
    size = int(parser.parse_args().gigabytes * 1e9)
    print(f"{'':16}{'GB':>6}{'diagnose':>10}{'signatures':>12}{'parser':>9}{'found':>24}")
    compare("nanoGPT", size, lambda lines: made_log("nanogpt", lines))
    compare("Megatron", size, lambda lines: made_log("megatron", lines))
    compare("one in a hundred", size, lambda lines: made_log("nanogpt", lines) + noise(99 * lines))
    compare("noise alone", size, noise)


def compare(name: str, size: int, make: Callable[[int], bytes]) -> None:
    """A log that counts its steps on, as one training of that length would."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        piece = make(1000)
        with log.open("wb") as file:
            if name in ("nanoGPT", "Megatron"):
                file.write(make(size // (len(piece) // 1000)))
            else:
                for _ in range(size // len(piece)):
                    file.write(piece)
        answer: list[str] = []
        whole_s = timed(lambda: answer.extend(f.code for f in diagnose_file(log).findings))
        scan, parser = SignatureScan(), LogParser()
        scan_s = timed(lambda: read(log, scan.feed))
        parse_s = timed(lambda: read(log, parser.feed))
        size = log.stat().st_size
    found = ",".join(dict.fromkeys(answer)) or "nothing"
    print(
        f"{name:16}{size / 1e9:6.2f}{whole_s:9.1f}s{scan_s:11.1f}s{parse_s:8.1f}s{found:>24}",
        flush=True,
    )


def read(log: Path, feed: Callable[[bytes], object]) -> None:
    with log.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            feed(chunk)


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
