"""Long logs are read by a process of their own, whose result can be asked for again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from trainmaster.metrics.log_file_metrics import FileMetrics, read_metrics
from trainmaster.metrics.read_file import read_file
from trainmaster.metrics.wanted import Wanted
from trainmaster.words.errors import StateError, UsageError
from trainmaster.words.paths import Home

pytestmark = pytest.mark.slow

_LOSS = Wanted(frozenset({"loss"}), times=False)
_BOUND_S = 300.0


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of 18 MB with 1,000 losses."""
    path = tmp_path / "train.log"
    noise = b"NCCL INFO Channel 00/02 : 0[1a000] -> 1[3d000] via NET/0 and so on\n" * 280
    path.write_bytes(b"".join(b"step=%d loss=%d.5\n" % (n, n) + noise for n in range(1000)))
    return path


def _read(home: Home, log: Path, wanted: Wanted = _LOSS, within_s: float = 0.0) -> FileMetrics:
    return asyncio.run(read_file(home, log, wanted, within_s=within_s))


def test_a_call_that_ran_out_of_time_is_repeated_for_the_result(tmp_path: Path, log: Path) -> None:
    home = Home(tmp_path / "home")
    with pytest.raises(StateError) as refused:
        _read(home, log)
    assert refused.value.code == "LOG_BEING_READ" and refused.value.retryable
    with log.open("ab") as file:
        file.write(b"step=5000 loss=1.0\n")  # the training continues meanwhile
    found = _read(home, log, within_s=_BOUND_S).series("loss").whole()
    assert found is not None and found.n in (1000, 1001)
    fresh = _read(home, log, within_s=_BOUND_S)
    assert fresh.to_dict() == read_metrics(log, _LOSS).to_dict()
    assert _read(home, log).to_dict() == fresh.to_dict()  # kept


def test_what_cannot_be_read_is_refused_as_at_once(tmp_path: Path) -> None:
    binary = tmp_path / "model.log"
    binary.write_bytes(bytes(range(256)) * (17 << 12))
    with pytest.raises(UsageError) as refused:
        _read(Home(tmp_path / "home"), binary, within_s=_BOUND_S)
    assert refused.value.code == "LOG_NOT_READABLE"
