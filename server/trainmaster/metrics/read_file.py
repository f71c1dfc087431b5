"""Reads the metrics of a log file: a long one in a detached process, whose result is awaited.

The process outlives its starter. A call for the same meanwhile waits for the same reading, and its
result is kept: asking again about an unchanged file takes no time.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from trainer_runtime.core.files.durable import is_locked
from trainer_runtime.core.processes.cgroup_limits import usable_cores
from trainmaster.metrics.log_file_metrics import FileMetrics, read_metrics
from trainmaster.metrics.log_ranges import Splitting
from trainmaster.metrics.wanted import Wanted
from trainmaster.store.detached import begin_locked
from trainmaster.words.errors import StateError, UsageError
from trainmaster.words.paths import Home

_SHORT_BYTES = 16 << 20  # read at once, within this process
_POLL_S = 0.05
_STARTS = 2
_WRITE_EVERY_S = 0.5
_MOST_KEPT = 32
_MOST_PROCESSES = 4  # each takes some 30 MB


async def read_file(
    home: Home, path: Path, wanted: Wanted, *, within_s: float | None = None
) -> FileMetrics:
    """What is wanted of a log; at most `within_s` seconds are waited for a long one.

    Raises:
        UsageError: `LOG_NOT_READABLE`.
        StateError: `LOG_BEING_READ`, reading takes longer; the same call again awaits its end.
    """
    try:
        status = path.stat()
    except OSError:
        status = None
    if status is None or status.st_size <= _SHORT_BYTES:
        return await asyncio.to_thread(read_metrics, path, wanted)
    reading = _Reading(home, path, wanted, (status.st_size, status.st_mtime_ns))
    return await reading.result(None if within_s is None else time.monotonic() + within_s)


def read_requested(home: Home, name: str) -> None:
    """Do what a reading of this name asks for; in a process of its own, which holds its lock."""
    from trainmaster.metrics.line_arrays import LineArrays  # loads slowly; pays for long logs

    files = _Files(home, name)
    request = json.loads(files.request.read_bytes())
    path, written = Path(request["path"]), 0.0

    def report(done_bytes: int) -> None:
        nonlocal written
        if time.monotonic() - written > _WRITE_EVERY_S:
            written = time.monotonic()
            _replace(files.progress, {"done_bytes": done_bytes})

    status = path.stat()
    answer: dict[str, object] = {"state": [status.st_size, status.st_mtime_ns]}
    try:
        splitting = Splitting(min(usable_cores(), _MOST_PROCESSES))
        wanted = Wanted.from_dict(request["wanted"])
        found = read_metrics(path, wanted, report, splitting, LineArrays)
        answer["found"] = found.to_dict()
    except UsageError as error:
        answer["error"] = error.to_dict()
    _replace(files.result, answer)


class _Files:
    def __init__(self, home: Home, name: str) -> None:
        self.request = home.reading(name, "request")
        self.progress = home.reading(name, "progress")
        self.result = home.reading(name, "result")
        self.awaited = home.reading(name, "awaited")
        self.lock = home.reading(name, "lock")


class _Reading:
    """The reading of one file for one purpose; `state`: the file's size and time of change."""

    def __init__(self, home: Home, path: Path, wanted: Wanted, state: tuple[int, int]) -> None:
        request = {"path": str(path), "wanted": wanted.to_dict()}
        self._request = request
        self._path, self._state = path, state
        self._name = hashlib.sha256(json.dumps(request).encode()).hexdigest()[:32]
        self._home, self._files = home, _Files(home, self._name)

    async def result(self, deadline: float | None) -> FileMetrics:
        starts = 0
        while True:
            running = is_locked(self._files.lock)
            found = None if running else await asyncio.to_thread(self._found)
            if found is not None:
                return found
            if not running:
                if starts == _STARTS:
                    raise _ended_early(self._path)
                starts += self._start()
            if deadline is not None and time.monotonic() > deadline:
                self._files.awaited.touch()
                raise self._being_read()
            await asyncio.sleep(_POLL_S)

    def _start(self) -> bool:
        self._files.request.parent.mkdir(parents=True, exist_ok=True)
        _forget_old(self._files.request.parent)
        _replace(self._files.request, self._request)
        self._files.progress.unlink(missing_ok=True)
        return begin_locked(self._home, self._files.lock, "read-log", self._name)

    def _found(self) -> FileMetrics | None:
        """The result, if it is of the file as it is, or a call ended before it was there."""
        try:
            answer = json.loads(self._files.result.read_bytes())
        except (OSError, ValueError):
            return None
        if tuple(answer["state"]) != self._state and not self._files.awaited.exists():
            return None
        self._files.awaited.unlink(missing_ok=True)
        if "error" in answer:
            self._files.result.unlink(missing_ok=True)
            error = answer["error"]
            raise UsageError(error["code"], error["message"], error["fix"])
        return FileMetrics.from_dict(answer["found"])

    def _being_read(self) -> StateError:
        try:
            done = json.loads(self._files.progress.read_bytes())["done_bytes"]
        except (OSError, ValueError, KeyError):
            done = 0
        share = min(99, 100 * done // max(1, self._state[0]))
        return StateError(
            "LOG_BEING_READ",
            f"{share} % of {self._path} is read ({self._state[0] / 1e9:.1f} GB).",
            "Reading continues in the background: repeat the same call to await its result.",
            retryable=True,
        )


def _ended_early(path: Path) -> UsageError:
    return UsageError(
        "LOG_NOT_READABLE",
        f"{path} can't be read as a log: the process that read it ended early.",
        "Check the free memory, then repeat the call.",
    )


def _forget_old(folder: Path) -> None:
    """Remove the oldest results, with what belongs to them."""
    results = sorted(folder.glob("*.result"), key=lambda path: path.stat().st_mtime)
    for result in results[: max(0, len(results) - _MOST_KEPT)]:
        for path in folder.glob(f"{result.stem}.*"):
            with suppress(OSError):
                path.unlink()


def _replace(path: Path, document: Mapping[str, object]) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(document))
    temporary.replace(path)  # not through to the disk: what is lost is read again
