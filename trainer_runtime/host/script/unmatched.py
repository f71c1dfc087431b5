"""Notices that a program's checkpoints or its log are not what the spec says they are.

Both are reported once in an attempt, as decisions that the detectors make findings of. A program
that trains well is not disturbed by them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from trainer_runtime.core.config.script import ScriptConfig
from trainer_runtime.core.diagnosis.detectors.unmatched import CHECKPOINTS
from trainer_runtime.core.protocol.duration import parse_duration
from trainer_runtime.host.attach.log_events import LogEvents
from trainer_runtime.host.attach.unread_log import UnreadLog
from trainer_runtime.host.script.saves import Saves

_MOST_FILES, _MOST_SEEN = 3, 5000
_WITH_TIME_TO_WRITE = 1.5  # intervals
_OF_CHECKPOINTS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".distcp", ".pkl", ".npz")
_CLOCK_SLACK_S = 2.0


class Unmatched:
    """One attempt's. `every`: the interval of `checkpoint.every`; 0 where no save is expected."""

    def __init__(
        self, script: ScriptConfig, base: Path, events: LogEvents, every: int | str | None
    ) -> None:
        self._script = script
        self._base = base
        self._events = events
        self._every = every
        self._started_t, self._started_s = time.time(), time.monotonic()
        self._unread = UnreadLog(events, script.pattern)
        self._has_said = False

    def poll(self, saves: Saves | None, steps: int, *, has_metrics: bool, ended: bool) -> None:
        """`steps`: so many were made in this attempt; `ended`: well, and nothing will follow."""
        self._unread.poll(has_metrics=has_metrics, ended=ended)
        if saves is None or self._has_said or not (ended or self._is_due(steps)):
            return
        self._has_said = True  # one that is saved later closes the finding
        if not saves.has_found:
            files = list(self._written())
            self._events.decide(CHECKPOINTS, pattern=saves.pattern, files=files)

    def _is_due(self, steps: int) -> bool:
        if isinstance(self._every, int):
            return 0 < self._every * _WITH_TIME_TO_WRITE < steps
        since_s = time.monotonic() - self._started_s
        return self._every is not None and since_s > parse_duration(self._every)

    def _written(self) -> Iterator[str]:
        """The newest files below the program's folder that may be its checkpoints."""
        newest_first: list[tuple[float, str]] = []
        seen = 0
        for folder, folders, names in os.walk(self._base):
            folders[:] = [name for name in folders if not name.startswith((".", "__"))]
            for path in (Path(folder, name) for name in names if name.endswith(_OF_CHECKPOINTS)):
                try:
                    modified_t = path.stat().st_mtime
                except OSError:
                    continue
                if modified_t >= self._started_t - _CLOCK_SLACK_S:
                    newest_first.append((-modified_t, str(path.relative_to(self._base))))
            seen += len(names)
            if seen > _MOST_SEEN:
                break
        for _, name in sorted(newest_first)[:_MOST_FILES]:
            yield name
