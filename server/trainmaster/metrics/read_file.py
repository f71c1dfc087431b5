"""Reads the metrics of a log file: a long one in a process of its own.

Its result is kept: asking again about an unchanged file takes no time.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from trainer_runtime import core
from trainmaster.calls.work import current_work
from trainmaster.calls.work_thread import in_thread
from trainmaster.home.paths import Home
from trainmaster.metrics.log_file_metrics import FileMetrics, read_metrics
from trainmaster.metrics.reading_process import METRICS, Requested, read_in_process
from trainmaster.metrics.wanted import Wanted

_SHORT_BYTES = 16 << 20  # read at once, within this process
_SHORT_BYTES_OF_SERVER = 4 << 20  # in which other calls wait for the interpreter
_MOST_KEPT = 32


async def read_file(home: Home, path: Path, wanted: Wanted) -> FileMetrics:
    """What is wanted of a log. Of one that can't be read in the time of the call, what its
    beginning has: `left_out_bytes`.

    Raises:
        UsageError: `LOG_NOT_READABLE`, as `read_metrics`.
        StateError: `READ_TOO_LONG`.
    """
    try:
        status = path.stat()
    except OSError:
        status = None
    if status is None or status.st_size <= short_bytes():
        return await in_thread(read_metrics, path, wanted)
    request = {"what": METRICS, "path": str(path), "wanted": wanted.to_dict()}
    kept = _Kept(home, request, (status.st_size, status.st_mtime_ns))
    metrics = await in_thread(kept.read)
    if metrics is None:
        answer = await read_in_process(request, in_part=True)
        metrics = FileMetrics.from_dict(answer["found"])
        if not metrics.left_out_bytes:
            await in_thread(kept.write, answer["found"])
    return metrics


def short_bytes() -> int:
    """The size of a log that this process reads by itself, in a thread."""
    return _SHORT_BYTES if current_work().shares is None else _SHORT_BYTES_OF_SERVER


def read_requested(requested: Requested) -> dict[str, Any]:
    """Read what a process was started for."""
    request = requested.request
    wanted = Wanted.from_dict(request["wanted"])
    metrics = read_metrics(Path(request["path"]), wanted, lambda _: requested.is_over())
    return {"found": metrics.to_dict()}


class _Kept:
    """The result of reading a file for one purpose; `state`: the file's size and time of change."""

    def __init__(self, home: Home, request: Mapping[str, Any], state: tuple[int, int]) -> None:
        name = hashlib.sha256(json.dumps(request).encode()).hexdigest()[:32]
        self._path, self._state = home.reading(name), list(state)

    def read(self) -> FileMetrics | None:
        """The result, if it is of the file as it is, and of this reader."""
        try:
            kept = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return None
        is_of_file = kept["state"] == self._state and kept.get("reader") == _reader()
        return FileMetrics.from_dict(kept["found"]) if is_of_file else None

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Keep a result; where it can't be written, the file is read again."""
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _forget_old(self._path.parent)
            kept = {"state": self._state, "reader": _reader(), "found": metrics}
            temporary.write_text(json.dumps(kept))
            temporary.replace(self._path)


@cache
def _reader() -> str:
    """A digest of the code that reads logs: after an update a log is read again."""
    digest = hashlib.sha256()
    for folder in (*core.__path__, str(Path(__file__).parent)):
        for path in sorted(Path(folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def _forget_old(folder: Path) -> None:
    """Remove the oldest results, and what an earlier version left."""
    results = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    for path in results[: max(0, len(results) - _MOST_KEPT)]:
        path.unlink(missing_ok=True)
