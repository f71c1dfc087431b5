"""Long logs of a server are read by a process of their own, which ends with the call."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.session.child_processes import descendants, until_gone

from trainmaster.calls.shares import Shares
from trainmaster.calls.work import Work, working
from trainmaster.errors.errors import StateError, UsageError
from trainmaster.metrics.log_file_metrics import read_metrics
from trainmaster.metrics.read_file import read_file
from trainmaster.metrics.wanted import Wanted
from trainmaster.runs.metrics.plot import draw_runs
from trainmaster.sync.workspace import Workspace

pytestmark = pytest.mark.slow

_LOSS = Wanted(frozenset({"loss"}), times=False)
_BOUND_S = 120.0
# All of its losses, and what lies behind them.
_BEGINNING_BYTES = 64 << 20


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of 18 MB with 1,000 losses."""
    path = tmp_path / "train.log"
    noise = b"NCCL INFO Channel 00/02 : 0[1a000] -> 1[3d000] via NET/0 and so on\n" * 280
    path.write_bytes(b"".join(b"step=%d loss=%d.5\n" % (n, n) + noise for n in range(1000)))
    return path


@pytest.fixture
def endless(log: Path) -> Path:
    """A log that begins as the other one and takes many minutes."""
    os.truncate(log, 2 << 40)
    return log


class _UntilRead(Work):
    """Work whose time is over once its processes have read the beginning of a log, however busy the
    machine is."""

    def __init__(self, started: Callable[[], list[int]]) -> None:
        super().__init__(shares=Shares())
        self._started, self._is_over = started, False
        self._until = time.monotonic() + _BOUND_S

    def left_s(self) -> float:
        self._is_over = self._is_over or self._read_bytes() > _BEGINNING_BYTES
        return 0.0 if self._is_over else max(0.0, self._until - time.monotonic())

    def _read_bytes(self) -> int:
        size_bytes = 0
        for pid in self._started():
            with suppress(OSError):  # it has ended
                size_bytes += int(Path(f"/proc/{pid}/io").read_text().split()[1])
        return size_bytes


def test_of_a_log_that_takes_too_long_the_beginning_is_answered(
    endless: Path, started_here: Callable[[], list[int]]
) -> None:
    with working(_UntilRead(started_here)):
        reading = asyncio.run(read_file(endless, _LOSS))
    losses = reading.series("loss").whole()
    assert losses is not None and losses.n == 1000
    assert reading.size_bytes + reading.left_out_bytes == 2 << 40
    assert not started_here()


@pytest.mark.long
def test_a_plot_of_such_a_log_marks_how_much_was_read(
    workspace: Workspace, endless: Path, started_here: Callable[[], list[int]]
) -> None:
    with working(_UntilRead(started_here)):
        answer, *_ = asyncio.run(draw_runs(workspace, [str(endless)], keys=["loss"], axis="step"))
    assert answer.runs == {str(endless): 1000}
    ((mark,),) = (answer.marks or {}).values()
    assert re.fullmatch(r"only its first [\d.]+ [KMGT]iB of 2 TiB were read", mark)
    assert not started_here()


def test_a_reading_that_has_nothing_in_time_is_refused(
    endless: Path, started_here: Callable[[], list[int]]
) -> None:
    async def refused() -> None:
        with working(Work(within_s=2.0, shares=Shares())), pytest.raises(StateError) as error:
            reading = asyncio.create_task(read_file(endless, _LOSS))
            while not started_here():
                await asyncio.sleep(0.01)
            for pid in started_here():
                os.kill(pid, signal.SIGSTOP)
            await reading
        assert error.value.code == "READ_TOO_LONG"

    asyncio.run(refused())
    assert not started_here()


def test_a_process_answers_as_a_thread(log: Path) -> None:
    with working(Work(shares=Shares())):
        answer = asyncio.run(read_file(log, _LOSS))
    series, expected = answer.series("loss"), read_metrics(log, _LOSS).series("loss")
    assert series.rows() == expected.rows() and series.whole() == expected.whole()


def test_a_cancelled_reading_leaves_no_process(
    endless: Path, started_here: Callable[[], list[int]]
) -> None:
    async def cancelled() -> list[int]:
        with working(Work(shares=Shares())):
            reading = asyncio.create_task(read_file(endless, _LOSS))
            while not (started := started_here()):
                await asyncio.sleep(0.01)
            reading.cancel()
            await asyncio.wait([reading])
        return started

    until_gone(asyncio.run(cancelled()), 3.0)


_READS = """
import asyncio, sys
from pathlib import Path
from trainmaster.metrics.read_file import read_file
from trainmaster.metrics.wanted import EVERYTHING
from trainmaster.calls.shares import Shares
from trainmaster.calls.work import Work, working
with working(Work(shares=Shares())):
    asyncio.run(read_file(Path(sys.argv[1]), EVERYTHING))
"""


def test_no_process_outlives_a_killed_caller(endless: Path) -> None:
    command = [sys.executable, "-c", _READS, str(endless)]
    with subprocess.Popen(command) as caller:
        deadline = time.monotonic() + _BOUND_S
        while not (started := descendants(caller.pid)):
            assert time.monotonic() < deadline
        caller.kill()
    until_gone(started, 3.0)


def test_a_reading_waits_for_its_callers_share(
    log: Path, started_here: Callable[[], list[int]]
) -> None:
    async def read() -> None:
        shares = Shares(of_caller=1)
        with working(Work("ann", shares=shares)):
            async with shares.taken("ann"):
                reading = asyncio.create_task(read_file(log, _LOSS))
                await asyncio.wait([reading], timeout=0.2)
                assert not reading.done() and not started_here()
            await reading

    asyncio.run(read())


def test_what_cannot_be_read_is_refused_as_at_once(tmp_path: Path) -> None:
    binary = tmp_path / "model.log"
    binary.write_bytes(bytes(range(256)) * (17 << 12))
    with working(Work(shares=Shares())), pytest.raises(UsageError) as refused:
        asyncio.run(read_file(binary, _LOSS))
    assert refused.value.code == "LOG_NOT_READABLE"
