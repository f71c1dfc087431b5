"""Where a program was at a time: the step of a checkpoint that does not say its own."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import deque

from trainer_runtime.core.files.regular import open_regular
from trainer_runtime.core.protocol.lines import ProtocolError, complete_lines, decode
from trainer_runtime.host.files.layout import RunFolder

_KEPT = 4096
# Lines are read at most so long after they were printed. A step too many is harmless: those between
# are computed again. With one too few, a resume would leave out the steps between.
_READ_LATER_S = 0.3
_READ_BYTES = 1 << 20


class StepTimes:
    """The newest steps with their times, of this attempt and of the end of the one before."""

    def __init__(self, run: RunFolder, attempt: int) -> None:
        self._times: deque[tuple[float, int]] = deque(maxlen=_KEPT)
        self._recall(run, attempt - 1)

    def add(self, t: float, step: int) -> None:
        if not self._times or self._times[-1][1] != step:
            self._times.append((t, step))

    def at(self, t: float) -> int:
        """The newest step that was printed by Unix time `t`; 0 where none was."""
        index = bisect_right(self._times, (t + _READ_LATER_S, 2**63))
        return self._times[index - 1][1] if index else 0

    def _recall(self, run: RunFolder, attempt: int) -> None:
        try:
            with open_regular(run.attempt(attempt).events) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _READ_BYTES))
                lines, _ = complete_lines(file.read())
        except OSError:
            return
        for line in lines:
            try:
                event = decode(line)
            except ProtocolError:
                continue  # the first one is cut
            if event.kind in ("metric", "eval") and event.step is not None:
                self.add(event.t, event.step)
