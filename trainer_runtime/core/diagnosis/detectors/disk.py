"""The disk fills up: `disk_filling`, with the hours left.

Free space sinks in steps, with every checkpoint, and comes back with every one that is pruned. So
the lowest of the newer half of the samples is held against the lowest of the older half: that the
two differ is what pruning does not make good. It is carried on for four times as long as was seen:
the first few checkpoints, which nothing prunes yet, look like filling. Nothing is said where the
run ends before the disk does. A disk that has no room for the next checkpoint is critical whatever
the trend.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.detectors.detector_context import Board
from trainer_runtime.core.diagnosis.detectors.trend import Trend
from trainer_runtime.core.diagnosis.remedies import OF_SERIES
from trainer_runtime.core.protocol.finding import Severity

_FEWEST_BLOCKS = 16
_LEAST_S = 1800.0
_SOON_H, _AT_ONCE_H = 24.0, 3.0
_LEAST_SUNK_GIB = 0.05
_CARRIED_ON = 4.0  # times the span that was seen
_ROOM = 1.2  # of a checkpoint: it is written before an older one is removed
_LEAST_FREE_GIB = 0.25
_CODE = "disk_filling"


@dataclass(slots=True)
class Disk:
    trend: Trend = field(default_factory=lambda: Trend(per_block=6))

    def sample(self, board: Board, t: float, free_gib: float) -> None:
        completed = self.trend.add(t, free_gib)
        needed = max(_LEAST_FREE_GIB, _ROOM * (board.checkpoint_gib or 0.0))
        if free_gib < needed and not board.finished:
            found = board.ledger.open(
                _CODE,
                round(t * 1000),
                "critical",
                confidence=0.95,
                remedies=OF_SERIES[_CODE],
            )
            found.values |= {"free_gib": free_gib, "needed_gib": needed}
        elif completed:
            self._look(board, t, free_gib)

    def restart(self) -> None:
        self.trend = Trend(per_block=6)

    def _look(self, board: Board, t: float, free_gib: float) -> None:
        hours = self._hours_left(free_gib)
        remaining = board.remaining_h
        too_late = remaining is not None and hours is not None and hours > remaining
        if hours is None or hours > _SOON_H or too_late or board.finished:
            board.ledger.close(_CODE, round(t * 1000))
            return
        severity: Severity = "critical" if hours < _AT_ONCE_H else "warning"
        onset = round(self.trend.xs[0] * 1000)
        found = board.ledger.open(_CODE, onset, severity, confidence=0.8, remedies=OF_SERIES[_CODE])
        found.values |= {"free_gib": free_gib, "hours_left": hours}

    def _hours_left(self, free_gib: float) -> float | None:
        """At the rate at which the lowest free space sinks; None while it doesn't."""
        xs, means = self.trend.xs, self.trend.means
        if len(xs) < _FEWEST_BLOCKS or xs[-1] - xs[0] < _LEAST_S:
            return None
        half = len(xs) // 2
        sunk = min(means[:half]) - min(means[half:])
        span_h = (xs[-1] - xs[0]) / 3600
        if sunk <= _LEAST_SUNK_GIB:
            return None
        hours = free_gib / sunk * span_h / 2
        return hours if hours < _CARRIED_ON * span_h else None
