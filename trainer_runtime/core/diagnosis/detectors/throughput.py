"""The run has become slower: `throughput_drop`.

MFU or tokens/s down by 15 % or more over five logged points, against the median of the 64 before;
points right after an evaluation or a save are left out, since many trainers count those seconds in.
Where steps are quick the five become as many as five seconds hold: less is a moment.
The five must lie below what the usual scatter explains (MAD z < -4): on a machine that is shared,
15 % are an everyday thing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.detectors.causes import slowing_cause, waiting_cause
from trainer_runtime.core.diagnosis.detectors.detector_context import Board
from trainer_runtime.core.diagnosis.detectors.window import Window, mad_z, median_of

# One of them is followed, the first that the run tells of in this order.
KEYS = ("tokens_per_s", "samples_per_s", "mfu", "step_time_s")
_DOWN = 0.85
_BACK = 0.92
_IN_A_ROW = 5
_LEAST_S = 5.0
_MOST_LOW = 64
_FEWEST = 16
_Z = -4.0
_SLOWEST = 1e-9
_LEVEL_POINTS = 2000  # after so many it is the run's new pace


@dataclass(slots=True)
class Throughput:
    """`median` and `mad` are those before the first of the low points, `low` these points."""

    key: str = ""
    window: Window = field(default_factory=Window)
    low: list[float] = field(default_factory=list)
    low_since: int = 0
    low_t: float | None = None
    median: float = 0.0
    mad: float = 0.0
    normal: int = 0
    points: int = 0

    def point(self, board: Board, key: str, step: int, value: float, after_pause: bool) -> None:
        if key != self.key and not self._follows(key):
            return
        if after_pause or value < _SLOWEST:  # nanoGPT prints an MFU of -100 % until it knows better
            return
        speed = 1 / value if key == "step_time_s" else value
        if self.points:
            self._go_on(board, step, speed)
        elif len(self.window) < _FEWEST or not self._is_low(board, step, speed):
            self.window.add(speed)
        elif len(self.low) >= _IN_A_ROW and self._lasts(board):
            self._judge(board, step)

    def restart(self) -> None:
        self.window.clear()
        self.low, self.points = [], 0

    def _follows(self, key: str) -> bool:
        if self.key and KEYS.index(key) > KEYS.index(self.key):
            return False
        self.key = key
        self.restart()
        return True

    def _is_low(self, board: Board, step: int, speed: float) -> bool:
        """Whether this point is one of a row of low ones."""
        if not self.low:
            ranked = self.window.ranked
            self.median = ranked[len(ranked) >> 1]
            if speed > _DOWN * self.median:
                return False
            self.low_since, self.low_t, self.mad = step, board.t, self.window.mad
        elif speed > _DOWN * self.median:
            for earlier in self.low:
                self.window.add(earlier)
            self.low = []
            return False
        self.low = [*self.low, speed][-_MOST_LOW:]
        return True

    def _lasts(self, board: Board) -> bool:
        known = board.t is not None and self.low_t is not None
        return not known or (board.t or 0.0) - (self.low_t or 0.0) >= _LEAST_S

    def _judge(self, board: Board, step: int) -> None:
        typical = median_of(sorted(self.low))
        if mad_z(typical, self.median, self.mad) > _Z and self.mad > 0:
            for earlier in self.low:
                self.window.add(earlier)
            self.low = []
            return
        slowed = slowing_cause(board.machine, board.best_clock_mhz)
        cause = slowed or waiting_cause(board.latest, board.machine)
        board.ledger.open(
            "throughput_drop",
            self.low_since,
            "warning",
            step=self.low_since,
            confidence=0.85,
            values={
                "key": self.key,
                "before": self._shown(self.median),
                "cause": cause.name,
                "cause_confidence": cause.confidence,
            },
        )
        self.points = 1
        self._go_on(board, step, typical)

    def _go_on(self, board: Board, step: int, speed: float) -> None:
        found = board.ledger.get("throughput_drop")
        self.points += 1
        self.normal = self.normal + 1 if speed >= _BACK * self.median else 0
        if found is not None and self.normal == 0:
            self.low = [*self.low, speed][-_IN_A_ROW:]
            typical = median_of(sorted(self.low))
            if typical <= _DOWN * self.median:
                drop = 1 - typical / self.median
                found.values |= {"now": self._shown(typical), "drop": drop, "last_step": step}
        if found is None or self.normal >= _IN_A_ROW or self.points > _LEVEL_POINTS:
            board.ledger.close("throughput_drop", step)
            self.restart()

    def _shown(self, speed: float) -> float:
        return 1 / speed if self.key == "step_time_s" else speed
