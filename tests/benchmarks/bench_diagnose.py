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

from support.core.synthetic_logs import made_log, noise

from trainer_runtime.core.diagnosis.parse import LogParser
from trainer_runtime.core.diagnosis.signatures import SignatureScan
from trainmaster.runs.diagnosis.diagnose_file import diagnose_file

_CHUNK_BYTES = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.0)
    size = int(parser.parse_args().gigabytes * 1e9)
    print(f"{'':16}{'GB':>6}{'diagnose':>10}{'signatures':>12}{'parser':>9}{'found':>24}")
    compare("nanoGPT", size, made_log("nanogpt", 100_000))
    compare("Megatron", size, made_log("megatron", 100_000))
    compare("one in a hundred", size, made_log("nanogpt", 1000) + noise(99_000))
    compare("noise alone", size, noise(40_000))


def compare(name: str, size: int, piece: bytes) -> None:
    """`piece` again and again, as of a training that is resumed from its beginning each time."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        with log.open("wb") as file:
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
    """Processor seconds: others may use the machine meanwhile."""
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    main()
