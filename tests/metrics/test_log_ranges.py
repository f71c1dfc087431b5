"""A log that several processes read gives exactly what one process finds in it."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.core.mixed_logs import mixed_log
from support.core.synthetic_bars import BARS, made_bars
from support.core.synthetic_logs import DIALECTS, made_log, noise
from support.session.child_processes import until_gone

from trainer_runtime.core.diagnosis.parse import LogParser
from trainmaster.errors.errors import UsageError
from trainmaster.metrics.line_arrays import LineArrays
from trainmaster.metrics.log_file_metrics import OnProgress, read_metrics
from trainmaster.metrics.log_ranges import Splitting, read_ranges
from trainmaster.metrics.range_points import PointReader
from trainmaster.metrics.range_processes import in_processes
from trainmaster.metrics.wanted import EVERYTHING, Wanted

pytestmark = pytest.mark.slow

_SMALL = Splitting(3, range_bytes=1 << 18)
_SIZE = 1_500_000
_BOUND_S = 60.0
_OF_RANKS = Wanted(frozenset({"loss", "val_loss", "loss/ranks_max"}), first=100, last=900)


def _read(
    path: Path, wanted: Wanted, splitting: Splitting, on_progress: OnProgress | None = None
) -> str:
    """What is found, as text, since NaN is not equal to itself. Several processes read by arrays,
    as they do for users."""
    tabulate = LineArrays if splitting.processes else None
    return json.dumps(read_metrics(path, wanted, on_progress, splitting, tabulate).to_dict())


def _are_same(log: bytes, path: Path, wanted: Wanted = EVERYTHING) -> bool:
    path.write_bytes(log)
    return _read(path, wanted, _SMALL) == _read(path, wanted, Splitting())


def _repeated(piece: bytes) -> bytes:
    return piece * (_SIZE // len(piece) + 1)


def _piece(source: random.Random, dialect: str) -> bytes:
    """The log of a training that begins and ends anywhere."""
    lines = made_log(dialect, 30_000, source.randrange(1000)).splitlines(keepends=True)
    first = source.randrange(1000)
    kept, size = [], 0
    for line in lines[first:]:
        size += len(line)
        if size > _SIZE:
            break
        kept.append(line)
    return b"".join(kept)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_log_of_every_framework_is_read_alike(dialect: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    source = random.Random(seed)
    log = _piece(source, dialect)
    assert _are_same(log, tmp_path / "train.log", source.choice([EVERYTHING, _OF_RANKS]))


@pytest.mark.parametrize("kind", BARS)
def test_progress_bars_are_read_alike(kind: str, tmp_path: Path) -> None:
    assert _are_same(made_bars(kind, 14_000), tmp_path / "train.log")


def _restarts(source: random.Random) -> bytes:
    return _repeated(made_log("nanogpt", 1000) + noise(source.randrange(300)))


def _rank_that_begins_late(source: random.Random) -> bytes:
    lines = [b"[rank2]: step=%d loss=%d.5\n" % (n, n) for n in range(30_000)]
    lines[source.randrange(15_000, 20_000)] = b"[rank1]: step=7 loss=7.5\n"
    lines[25_000:26_000] = [b"[rank0]: step=%d loss=0.5\n" % n for n in range(1000)]
    return b"".join(lines)


def _ranks_that_alternate(source: random.Random) -> bytes:
    return b"".join(
        b"[rank%d]: step=%d loss=%d.5\n" % (rank, step % 3000, rank)
        for step in range(6000)
        for rank in source.sample(range(8), 8)
    )


def _thousands_of_ranks(source: random.Random) -> bytes:
    return b"".join(
        b"[rank%d]: step=%d loss=%d.5\n" % (source.randrange(3000), n // 3000, n)
        for n in range(40_000)
    )


def _another_format_half_way(source: random.Random) -> bytes:
    first, second = source.sample(sorted(DIALECTS), 2)
    return _piece(source, first)[: _SIZE // 2] + b"\n" + _piece(source, second)[: _SIZE // 2]


def _facts_that_come_late(source: random.Random) -> bytes:
    lines = made_log("huggingface4", 12_000).splitlines(keepends=True)
    lines.insert(source.randrange(5000, 8000), b"  Num update steps per epoch = 10\n")
    return b"".join(lines)


def _counted_beside_another_clock(source: random.Random) -> bytes:
    lines = made_log("huggingface4", 12_000).splitlines(keepends=True)
    for _ in range(20):
        lines.insert(source.randrange(len(lines)), b"step=%d loss=2.5\n" % source.randrange(9000))
    return b"".join(lines)


def _epochs(source: random.Random) -> bytes:
    return _repeated(
        b"".join(
            b"Epoch %d/300 - loss: 0.5 - accuracy: 0.25\n" % n + noise(source.randrange(4))
            for n in range(1, 301)
        )
    )


def _many_keys(source: random.Random) -> bytes:
    return b"".join(
        b"step=%d loss=0.5 train/m%d=0.25\n" % (n, source.randrange(n // 40 + 1))
        for n in range(45_000)
    )


def _lines_too_long(source: random.Random) -> bytes:
    lines = [b"step=%d loss=0.5\n" % n for n in range(20_000)]
    for length in (70_000, 400_000, 70_000):
        lines.insert(source.randrange(len(lines)), b"x" * length + b" step=9 loss=9\n")
    return b"".join(lines)


def _table(source: random.Random) -> bytes:
    rows = b"".join(b"%d,%.4f,1e-3\n" % (n, source.random()) for n in range(70_000))
    return b"starting\nstep,loss,lr\n" + rows


def _sparse(source: random.Random) -> bytes:
    return b"".join(b"step=%d loss=0.5\n" % n + noise(source.randrange(9000)) for n in range(4))


def _long_noise_between(_: random.Random) -> bytes:
    return (made_log("nanogpt", 3000) + noise(5000)) * 6


def _zeros_in_front(source: random.Random) -> bytes:
    return bytes(700_000) + b"\n" + _piece(source, "nanogpt")


def _noise_below_what_begins_late(_: random.Random) -> bytes:
    """A rank that no lines below it would have guessed, above more noise than is searched."""
    ranks = b"".join(b"[rank2]: step=%d loss=%d.5\n" % (n, n) for n in range(30_000))
    return ranks + b"[rank1]: step=7 loss=7.5\n" + noise(10_000) * 12


@pytest.mark.parametrize(
    "made",
    [
        _restarts,
        _rank_that_begins_late,
        _ranks_that_alternate,
        _thousands_of_ranks,
        _another_format_half_way,
        _facts_that_come_late,
        _counted_beside_another_clock,
        _epochs,
        _many_keys,
        _lines_too_long,
        _table,
        _sparse,
        _long_noise_between,
        _noise_below_what_begins_late,
        _zeros_in_front,
        lambda _: noise(30_000),
        lambda _: noise(25_000) + made_log("nanogpt", 20_000),
        lambda source: b"".join(mixed_log(source) for _ in range(90)),
    ],
)
def test_a_log_whose_lines_depend_on_those_far_above_is_read_alike(
    made: Callable[[random.Random], bytes], tmp_path: Path
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    source = random.Random(seed)
    assert _are_same(made(source), tmp_path / "train.log", source.choice([EVERYTHING, _OF_RANKS]))


def test_a_range_is_guessed_from_above_the_noise_before_it(tmp_path: Path) -> None:
    log, forks = tmp_path / "train.log", [0]
    log.write_bytes(_long_noise_between(random.Random()))
    os.register_at_fork(after_in_parent=lambda: forks.append(0))
    forks.clear()
    read_metrics(log, EVERYTHING, None, _SMALL)
    assert len(forks) == _SMALL.processes  # after a wrong guess others are started


class _CountingReader(PointReader):
    """Counts the bytes that are read, in all processes."""

    def __init__(self) -> None:
        super().__init__(LogParser(), EVERYTHING, ())
        self.read_bytes = multiprocessing.Value("q", 0)

    def feed(self, data: bytes) -> None:
        with self.read_bytes.get_lock():
            self.read_bytes.value += len(data)
        super().feed(data)


@pytest.mark.parametrize("others", [b"", b"  Total optimization steps = 300\n"])
def test_what_is_no_metric_is_read_once(others: bytes, tmp_path: Path) -> None:
    log, reader = tmp_path / "train.log", _CountingReader()
    log.write_bytes((noise(500) + others) * 80)
    splitting = Splitting(3, range_bytes=1 << 20)
    assert [size for size, _ in read_ranges(log, reader, splitting)][-1] == log.stat().st_size
    assert reader.read_bytes.value < 1.5 * log.stat().st_size


def test_taught_lines_are_read_alike(tmp_path: Path) -> None:
    log = b"".join(b"at %d we lost %d.5 of it\n" % (n, n % 7) for n in range(60_000))
    wanted = Wanted(frozenset({"loss"}), pattern="at {step} we lost {loss}")
    assert _are_same(log, tmp_path / "train.log", wanted)


def test_what_is_binary_is_refused_alike(tmp_path: Path) -> None:
    path = tmp_path / "model.log"
    path.write_bytes(bytes(range(256)) * 5000)
    refusals = []
    for splitting in (_SMALL, Splitting()):
        with pytest.raises(UsageError) as refused:
            read_metrics(path, EVERYTHING, None, splitting)
        refusals.append(refused.value.to_dict())
    assert refusals[0] == refusals[1] and refusals[0]["code"] == "LOG_NOT_READABLE"


def test_what_is_appended_while_a_log_is_read_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(made_log("nanogpt", 30_000))
    expected = _read(path, EVERYTHING, Splitting())

    def append(_: int) -> None:
        with path.open("ab") as file:
            file.write(b"iter 99999: loss 9.0\n")

    assert _read(path, EVERYTHING, _SMALL, append) == expected


def test_a_log_that_becomes_shorter_is_read_to_its_new_end(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(made_log("nanogpt", 30_000))
    reached: list[int] = []

    def shorten(done_bytes: int) -> None:
        reached.append(done_bytes)
        os.truncate(path, 1000)

    found = read_metrics(path, EVERYTHING, shorten, _SMALL)
    assert found.size_bytes == reached[-1] < 1 << 20


def test_ranges_whose_process_is_killed_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(made_log("nanogpt", 60_000))
    expected = _read(path, EVERYTHING, Splitting())
    killed = []

    def kill(_: int) -> None:
        for process in multiprocessing.active_children()[:1]:
            process.kill()
            killed.append(process.pid)

    assert _read(path, EVERYTHING, _SMALL, kill) == expected
    assert killed


def test_of_a_killed_process_no_result_is_awaited() -> None:
    def read(begin: int, end: int) -> int:
        if begin == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return begin + end

    results = in_processes(read, iter([(n, n + 1) for n in range(5)]), 2)
    found = [next(results) for _ in range(4)]
    results.close()
    assert found == [((0, 1), 1), ((1, 2), 3), ((2, 3), 5), ((3, 4), None)]
    assert not multiprocessing.active_children()


def test_no_process_is_left_where_reading_is_broken_off(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(made_log("nanogpt", 60_000))
    seen = []

    def interrupt(_: int) -> None:
        seen.extend(multiprocessing.active_children())
        if seen:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_metrics(path, EVERYTHING, interrupt, _SMALL)
    assert seen and not multiprocessing.active_children()


_STANDS_STILL = """
import multiprocessing, sys, threading
from pathlib import Path
from trainmaster.metrics.log_file_metrics import read_metrics
from trainmaster.metrics.wanted import EVERYTHING
from trainmaster.metrics.log_ranges import Splitting, read_ranges
from trainmaster.metrics.range_points import PointReader

def stop(_):
    if children := multiprocessing.active_children():
        print(*(child.pid for child in children), flush=True)
        threading.Event().wait()

read_metrics(Path(sys.argv[1]), EVERYTHING, stop, Splitting(3, 1 << 18))
"""


def test_no_process_outlives_a_killed_reader(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(made_log("nanogpt", 60_000))
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'server'}"}
    command = [sys.executable, "-c", _STANDS_STILL, str(path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        try:
            children = [int(pid) for pid in reader.stdout.readline().split()]
        finally:
            reader.kill()
    deadline = time.monotonic() + _BOUND_S
    while any(Path(f"/proc/{pid}/cmdline").exists() for pid in children):
        assert time.monotonic() < deadline
    assert len(children) == 3


_READS_ON = """
import os, threading
from trainmaster.metrics.range_processes import in_processes

def read(begin, end):
    os.write(1, b"%d\\n" % os.getpid())  # a whole line at once: another process writes there, too
    threading.Event().wait()

next(in_processes(read, iter([(0, 1), (1, 2)]), 2))
"""


def test_a_process_within_a_range_ends_with_its_killed_reader() -> None:
    """It doesn't see that nobody waits for its result: the kernel ends it."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'server'}"}
    command = [sys.executable, "-c", _READS_ON]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        try:
            children = [int(reader.stdout.readline()) for _ in range(2)]
        finally:
            reader.kill()
    try:
        until_gone(children, _BOUND_S)
    finally:
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
