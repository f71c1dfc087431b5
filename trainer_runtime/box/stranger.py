"""Whether a training that others have started still goes on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from trainer_runtime.box.identity import ProcessIdentity, current_epoch, is_alive
from trainer_runtime.box.open_files import writers
from trainer_runtime.core.duration import spoken_duration

_LOOK_EVERY_S = 5.0
_GAPS = 10  # so many of the longest silence so far are no end yet


class Stranger:
    """The processes that write a log, as far as they can be known; else its silence tells.

    `processes` are those that were found when it was attached to; whoever takes over the log from
    them counts as well. Where nobody was ever seen, it has ended once the log has been silent for
    `silence_s`, and for ten times its longest silence before.
    """

    def __init__(
        self, processes: Sequence[ProcessIdentity], log: Path | None, silence_s: float
    ) -> None:
        self._processes = list(processes)
        self._log = log
        self._silence_s = silence_s
        self._grew_t: float | None = None
        self._longest_gap_s = 0.0
        self._look_due = 0.0

    def end(self, now: float, *, grew: bool) -> str | None:
        """How it ended, in words; None while it goes on. `now`: Unix seconds."""
        self._note(now, grew)
        if any(is_alive(process) for process in self._processes):
            return None
        if self._log is not None and time.monotonic() >= self._look_due:
            self._look_due = time.monotonic() + _LOOK_EVERY_S
            successors = writers(self._log)
            if successors:
                self._processes = successors
                return None
            if self._processes:
                return self._gone()
        elif self._log is None:
            return self._gone()
        if self._processes or grew:
            return None  # it is looked for again soon
        silent_s = now - (self._grew_t or now)
        if silent_s <= max(self._silence_s, _GAPS * self._longest_gap_s):
            return None
        return f"nothing was written for {spoken_duration(silent_s)}, and nobody has the log open"

    def _note(self, now: float, grew: bool) -> None:
        if self._grew_t is None:
            self._grew_t = min(now, self._written_t() or now)
        elif grew:
            self._longest_gap_s = max(self._longest_gap_s, now - self._grew_t)
            self._grew_t = now

    def _written_t(self) -> float | None:
        try:
            return None if self._log is None else self._log.stat().st_mtime
        except OSError:
            return None

    def _gone(self) -> str:
        if self._processes and all(one.epoch != current_epoch() for one in self._processes):
            return "the machine was restarted"
        return "its process is gone"
