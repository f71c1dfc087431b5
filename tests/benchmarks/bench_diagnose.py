"""`diagnose FILE`, which is signatures, series and detectors in one pass, beside `grep -c`.

python tests/benchmarks/bench_diagnose.py [--turns 3] [--megabytes 8]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.result import Goal, at_least
from support.benchmarks.turns import rate
from support.core.synthetic_logs import DIALECTS, made_log, noise

from trainer_runtime.core.diagnosis.signatures import SignatureScan, find
from trainmaster.runs.diagnosis.diagnose_file import diagnose_file

_CHUNK_BYTES = 1 << 20
_FAILURE = b"RuntimeError: CUDA error: an illegal memory access was encountered\n"
_SIGNATURES_GOAL = at_least(200)  # 5 s for 1 GB


def measure(bench: Benchmark) -> None:
    size = int(bench.sizes["megabytes"] * 1e6)
    mixed = b"".join(made_log(dialect, 4_000) for dialect in DIALECTS)
    pieces = {
        "nanoGPT": made_log("nanogpt", 60_000),
        "all dialects": mixed,
        "one line in ten noise": mixed + noise(len(DIALECTS) * 400),
        "noise alone": noise(40_000),
    }
    for name, piece in pieces.items():
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "train.log"
            write(log, piece, size)
            goal = _SIGNATURES_GOAL
            compare(bench, f"signatures, {name}", log, lambda log=log: signatures(log), goal)
            compare(bench, f"diagnose, {name}", log, lambda log=log: diagnose(log), None)


def write(log: Path, piece: bytes, size: int) -> None:
    """`piece` again and again, as of a training that is resumed from its beginning each time."""
    with log.open("wb") as file:
        for _ in range(max(1, size // len(piece))):
            file.write(piece)
        file.write(_FAILURE)


def compare(
    bench: Benchmark, name: str, log: Path, work: Callable[[], list[str]], goal: Goal | None
) -> None:
    found: list[str] = []
    megabytes = log.stat().st_size / 1e6
    bench.compare(
        name,
        "MB/s",
        ours=rate(lambda: found.extend(work()), megabytes),
        peer=("grep -c", rate(lambda: grep_count(log), megabytes)),
        goal=goal,
        turns=min(3, bench.turns),
    )
    assert found, "the failure at the log's end was not found"


def grep_count(log: Path) -> None:
    """Through a pipe: grep stops early where its output is the null device."""
    with log.open("rb") as file:
        cat = subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE)
        subprocess.run(["grep", "-c", "loss"], stdin=cat.stdout, capture_output=True, check=False)
        cat.wait()


def diagnose(log: Path) -> list[str]:
    return [finding.code for finding in diagnose_file(log).findings]


def signatures(log: Path) -> list[str]:
    scan = SignatureScan()
    with log.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            scan.feed(chunk)
    scan.finish()
    return [finding.code for finding in find(scan.result())]


if __name__ == "__main__":
    run_benchmark(measure, megabytes=Size(8, full=1000))
