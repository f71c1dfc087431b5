"""`metrics FILE` beside one regular expression per line, and `logs --grep` beside `grep -c`.

python tests/benchmarks/bench_files.py [--turns 3] [--megabytes 100] [--each 32] [--full]

Each is a whole program: on a log that is made for it, with --full of 2 GB, and on the log of every
framework, repeated to `--each` megabytes: what the program needs for a log without a line is left
out there. `TRAINMASTER_LOGS` names a folder of real logs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from statistics import harmonic_mean

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.corpus import folder_of, unpacked
from support.benchmarks.result import Result, at_least, times_as_fast
from support.benchmarks.turns import rate, seconds
from support.core.synthetic_logs import DIALECTS, made_log, noise

_ONE_REGEX = """
import re, sys
one = re.compile(rb"(?:step|iter)[:= ]*(\\d+).*?loss[^\\d-]{1,9}([\\d.]+)")
for line in open(sys.argv[1], "rb"):
    found = one.search(line)
    if found:
        float(found[2])
"""
_GOAL_MB_S = 20
_PIECE_LINES = 100_000
_LINES = 30_000  # of a framework's log, before it is repeated
_LONG_BYTES = 17_000_000  # so much is read by a process of its own
_STARTS = 3
_REAL = "metrics of real "
_FEWER_TURNS = 5  # the logs are many: so many times fewer turns than elsewhere


def measure(bench: Benchmark) -> None:
    size = int(bench.sizes["megabytes"] * 1e6)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "train.log")
        written = write_log(log, size)
        bench.compare(
            "metrics FILE",
            "MB/s",
            ours=rate(lambda: trainmaster("metrics", str(log)), written / 1e6),
            peer=("one regex", rate(lambda: one_regex(log), written / 1e6)),
            goal=at_least(_GOAL_MB_S),
        )
        for word in ("CUDA out of memory", "checkpoint"):
            bench.compare(
                f"logs --grep {word!r}",
                "MB/s",
                ours=rate(lambda w=word: trainmaster("logs", str(log), "--grep", w), written / 1e6),
                peer=("grep -c", rate(lambda w=word: grep(log, w), written / 1e6)),
                goal=times_as_fast(0.3),
            )
        measure_kinds(bench, log)


def measure_kinds(bench: Benchmark, log: Path) -> None:
    """The log of each framework, real ones and noise; `log` is overwritten."""
    log.write_bytes(b"x" * _LONG_BYTES)
    start_s = shortest_s(lambda: trainmaster("metrics", str(log)))
    peer_start_s = shortest_s(lambda: one_regex(Path(os.devnull)))
    bench.report("metrics FILE without a line", "s", ours=(start_s,))
    made = ((f"metrics of {name}", made_log(name, _LINES)) for name in DIALECTS)
    goals = {"metrics of noise": 300}
    found: list[Result] = []
    for name, piece in chain(made, [("metrics of noise", noise(_PIECE_LINES))], real_logs()):
        written = write_repeated(log, piece, int(bench.sizes["each"] * 1e6)) / 1e6
        ours = seconds(lambda: trainmaster("metrics", str(log)))
        peer = seconds(lambda: one_regex(log))
        result = bench.compare(
            name,
            "MB/s",
            ours=lambda ours=ours, written=written: written / max(ours() - start_s, 1e-3),
            peer=(
                "one regex",
                lambda peer=peer, written=written: written / max(peer() - peer_start_s, 1e-3),
            ),
            goal=at_least(goals.get(name, _GOAL_MB_S)),
            turns=max(1, bench.turns // _FEWER_TURNS),
        )
        found.append(result)
    report_together(bench, [one for one in found if one.name.startswith(_REAL) and one.ours])


def report_together(bench: Benchmark, found: Sequence[Result]) -> None:
    """The real logs one after the other, of each kind as many bytes."""
    if found:
        bench.report(
            f"{_REAL}logs together",
            "MB/s",
            ours=[harmonic_mean(turn) for turn in zip(*[one.ours for one in found], strict=True)],
            peer=(
                found[0].peer_name,
                [harmonic_mean(turn) for turn in zip(*[one.peer for one in found], strict=True)],
            ),
            goal=at_least(_GOAL_MB_S),
            note=f"{len(found)} kinds, of each as many bytes",
        )


def shortest_s(work: Callable[[], object]) -> float:
    """Of a few runs; what both sides need before the first line is left out of their speeds."""
    measured = seconds(work)
    return min(measured() for _ in range(_STARTS))


def real_logs() -> Iterator[tuple[str, bytes]]:
    """The real logs by what their names begin with, those of a kind one below the other."""
    folder = folder_of("TRAINMASTER_LOGS", "logs")
    if folder is None:
        return
    kinds: dict[str, list[bytes]] = defaultdict(list)
    with unpacked(folder) as wild:
        for path in sorted([*folder.glob("captured/*"), *folder.glob("public/*"), *wild.iterdir()]):
            kinds[re.split(r"[_.]", path.name)[0]].append(path.read_bytes())
    for name, logs in sorted(kinds.items()):
        yield f"{_REAL}{name}", b"\n".join(logs) + b"\n"


def write_repeated(path: Path, piece: bytes, size: int) -> int:
    """The piece again and again, up to `size` bytes or a little more."""
    times = max(1, size // len(piece))
    with path.open("wb") as file:
        return sum(file.write(piece) for _ in range(times))


def write_log(path: Path, size: int) -> int:
    """A log of `size` bytes or a little more: a training, again and again, and noise."""
    piece = made_log("nanogpt", _PIECE_LINES) + noise(_PIECE_LINES // 4)
    written = 0
    with path.open("wb") as file:
        while written < size:
            written += file.write(piece)
    return written


def trainmaster(*words: str) -> None:
    """The program in a home of its own, so that nothing was read before."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "TRAINMASTER_HOME": home}
        command = [sys.executable, "-m", "trainmaster", *words, "--json"]
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)


def one_regex(log: Path) -> None:
    subprocess.run([sys.executable, "-c", _ONE_REGEX, str(log)], check=True)


def grep(log: Path, word: str) -> None:
    """Through a pipe: with its output discarded, grep stops at the first line."""
    subprocess.run(["grep", "-c", "--", word, str(log)], stdout=subprocess.PIPE, check=False)


if __name__ == "__main__":
    run_benchmark(measure, megabytes=Size(100, full=2000), each=Size(32, full=200))
