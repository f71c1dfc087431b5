"""Reads the metrics of a log file: a server's long one in a process of its own."""

from __future__ import annotations

from pathlib import Path

from trainmaster.metrics.log_file_metrics import FileMetrics, read_metrics
from trainmaster.metrics.reading_process import is_over, read_beside
from trainmaster.metrics.wanted import Wanted


async def read_file(path: Path, wanted: Wanted) -> FileMetrics:
    """What is wanted of a log. Of one that can't be read in the time of the call, what its
    beginning has: `left_out_bytes`.

    Raises:
        UsageError: `LOG_NOT_READABLE`, as `read_metrics`.
        StateError: `READ_TOO_LONG`.
    """
    return await read_beside(path, _until_over, path, wanted)


def _until_over(path: Path, wanted: Wanted) -> FileMetrics:
    return read_metrics(path, wanted, lambda _: is_over())
