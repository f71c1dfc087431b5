"""What may still be written for one attempt whose content others produce.

Asked before each write, by the bytes to be written: the disk itself says how much is free. All
supervisors of a host share the count of the root, in `written.usage` there.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

from trainer_runtime.core.decoding import DecodingError
from trainer_runtime.core.files.shared_quota import SharedQuota
from trainer_runtime.core.policy.write_bounds import Refusal, WriteBounds
from trainer_runtime.host.files.files import read_fields
from trainer_runtime.host.files.layout import RunFolder

LIMITS = "limits.json"
_USAGE = "written.usage"
_BLOCK_BYTES = 512  # in which st_blocks counts
_READ_EVERY_S, _MEASURED_EVERY_S = 5.0, 0.5


class WriteRoom:
    """The room of one attempt. `log`: the file that `WriteBounds.source` is about; None: nobody
    copies one, the attempt's own program writes its log, which is not counted."""

    def __init__(self, run: RunFolder, attempt: int, log: Path | None) -> None:
        self._root, self._log = run.host_root, log
        self._attempts = run.attempt(attempt).root.parent
        self._bounds, self._bounds_t = WriteBounds(), -math.inf
        self._used, self._used_t = 0, -math.inf
        self._total = SharedQuota(
            self._root / _USAGE, lambda: self.bounds().root, lambda: _used_of_all(run.runs)
        )

    def bounds(self) -> WriteBounds:
        """The host's own, or as its owner has set them; an unreadable file counts as none."""
        now = time.monotonic()
        if now - self._bounds_t > _READ_EVERY_S:
            self._bounds, self._bounds_t = bounds_of(self._root), now
        return self._bounds

    def lacks(self, more_bytes: int) -> Refusal | None:
        """The bound of the run or the disk that so much more would pass."""
        bounds = self.bounds()
        if self._used_of_run() + more_bytes > bounds.run:
            return Refusal("run", bounds.run)
        margin = _missing_margin(self._attempts, bounds, more_bytes)
        return None if margin is None else Refusal("disk", margin)

    def take(self, more_bytes: int) -> Refusal | None:
        """Count so much as written to the copy; nothing is counted where a bound is in the way."""
        bounds = self.bounds()
        if self._log is not None and _size(self._log) + more_bytes > bounds.source:
            return Refusal("source", bounds.source)
        refusal = self.lacks(more_bytes)
        if refusal is None and not self._is_within_total(more_bytes):
            refusal = Refusal("root", bounds.root)
        self._used += 0 if refusal is not None else more_bytes
        return refusal

    def _is_within_total(self, more_bytes: int) -> bool:
        try:
            return self._total.take(more_bytes)
        except OSError:  # the count can't be kept just now
            return False

    def _used_of_run(self) -> int:
        now = time.monotonic()
        if now - self._used_t > _MEASURED_EVERY_S:
            names = frozenset() if self._log is not None else frozenset({"train.log"})
            self._used, self._used_t = _allocated(self._attempts, names), now
        return self._used


def bounds_of(root: Path) -> WriteBounds:
    """The bounds of a host: those of its `limits.json`, where that can be read."""
    fields = read_fields(root / LIMITS)
    try:
        return WriteBounds() if fields is None else WriteBounds.of(fields)
    except (DecodingError, OverflowError):
        return WriteBounds()


def is_short(folder: Path, bounds: WriteBounds) -> bool:
    """Whether the disk of a folder has less than its margin."""
    return _missing_margin(folder, bounds, 0) is not None


def _missing_margin(folder: Path, bounds: WriteBounds, more_bytes: int) -> int | None:
    """The margin of a disk that would not keep it; None where it would."""
    disk = os.statvfs(folder)
    margin = bounds.margin_of(disk.f_blocks * disk.f_frsize)
    return margin if disk.f_bavail * disk.f_frsize - more_bytes < margin else None


def _used_of_all(runs: Path) -> int:
    """What all runs hold that copy others' logs: they have noted where from."""
    return sum(
        _allocated(attempts)
        for attempts in runs.glob("*/attempts")
        if any(attempts.glob("*/source.jsonl"))
    )


def _allocated(folder: Path, not_counted: frozenset[str] = frozenset()) -> int:
    """The bytes of a disk that the files below a folder take."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            if name not in not_counted:
                try:
                    total += os.lstat(f"{place}/{name}").st_blocks * _BLOCK_BYTES
                except FileNotFoundError:
                    continue
    return total


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
