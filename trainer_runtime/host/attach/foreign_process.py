"""Watches whether a training that was not started by us still runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trainer_runtime.core.protocol.figures import spoken_duration
from trainer_runtime.host.processes.identity import ProcessIdentity, current_epoch, is_alive

GONE = "its process is gone"
_CHECK_EVERY_S = 1.0
_GONE_FOR_S = 2.0
_GAPS = 10  # so many of the longest silence so far are no end yet


class ForeignProcess:
    """The processes of a training, as far as they are known; otherwise its log's silence counts.

    `processes` are those that were found when it was attached to; `successors` finds who has taken
    over from them. It has ended once none of either has been there for two seconds. Where nobody
    was ever seen, it has once the log has been silent for `silence_s`, and for ten times its
    longest silence before.
    """

    def __init__(
        self,
        processes: Sequence[ProcessIdentity],
        successors: Callable[[], Sequence[ProcessIdentity]],
        log: Path,
        silence_s: float,
    ) -> None:
        self._processes = list(processes)
        self._successors = successors
        self._silence_s = silence_s
        self._grew_t = _written_t(log)
        self._longest_gap_s = 0.0
        self._check_due = 0.0
        self._gone_since: float | None = None

    def end(self, now: float, *, grew: bool) -> str | None:
        """How it ended, in words; None while it runs. `now`: Unix seconds."""
        if grew:
            if self._grew_t is not None:
                self._longest_gap_s = max(self._longest_gap_s, now - self._grew_t)
            self._grew_t = now
        if any(map(is_alive, self._processes)) or time.monotonic() < self._check_due:
            return None
        self._check_due = time.monotonic() + _CHECK_EVERY_S
        successors = self._successors()
        if successors:
            self._processes, self._gone_since = list(successors), None
            return None
        return self._gone() if self._processes else self._silent(now)

    def _gone(self) -> str | None:
        self._gone_since = self._gone_since or time.monotonic()
        if time.monotonic() - self._gone_since < _GONE_FOR_S:
            return None
        if all(process.epoch != current_epoch() for process in self._processes):
            return "the machine was restarted"
        return GONE

    def _silent(self, now: float) -> str | None:
        self._grew_t = self._grew_t or now
        silent_s = now - self._grew_t
        if silent_s <= max(self._silence_s, _GAPS * self._longest_gap_s):
            return None
        return f"nothing was written for {spoken_duration(silent_s)}, and nobody has the log open"


def _written_t(log: Path) -> float | None:
    try:
        return log.stat().st_mtime
    except OSError:
        return None
