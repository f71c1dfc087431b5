"""Reads the metrics of a log file, a long one in a process of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

from trainmaster.metrics.log_file_metrics import FileMetrics, Wanted, read_metrics


async def read_file(path: Path, wanted: Wanted) -> FileMetrics:
    return await asyncio.to_thread(read_metrics, path, wanted)
