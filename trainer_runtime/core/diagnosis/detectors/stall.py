"""No step for too long by the run's own clock: `stall`.

Too long is ten times the interval that 99 of 100 steps stay under, and two minutes at least; after
a step at which an evaluation or a save is due, three times the longest such pause as well (an
evaluation took 35 s against steps of 1.1 s). GPU utilisation proves nothing: 512 GPUs hung for
33 minutes at 100 % (marin#7344). What it turns out to be (`hang_collective`, …) stacks must tell.

Silence is added up from look to look, each counting for no more than four usual distances between
looks: neither a clock that was set nor a machine that slept makes a stall.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.diagnosis.detectors.detector_context import Board
from trainer_runtime.core.diagnosis.detectors.pace import Pace

_TIMES_P99 = 10.0
_LEAST_S = 120.0
_TIMES_PAUSE = 3.0
_FIRST_PAUSE_S = 600.0  # nobody knows yet how long this run's evaluations and saves take
_START_S = 1800.0  # until the first step: loading, compiling
_FEW_INTERVALS = 5
_FEW_S = 600.0
_LONGEST_LOOK_S = 60.0
_LOOKS = 4.0
_LONG = 5.0


@dataclass(slots=True)
class Stall:
    silent_s: float = 0.0
    looked_at: float | None = None
    usual_look_s: float = 0.0
    set_back: bool = False
    begun: bool = False

    def alive(self, board: Board, step: int) -> None:
        """A step, an evaluation or a checkpoint was told of."""
        self.silent_s, self.set_back, self.begun = 0.0, False, True
        board.ledger.close("stall", step)

    def start(self) -> None:
        """The trainer was started; its first step is awaited."""
        self.silent_s, self.begun = 0.0, True

    def look(self, board: Board, pace: Pace, now: float) -> None:
        """Look at the clock: `now` in Unix seconds."""
        last, self.looked_at = self.looked_at, now
        if last is None or not self.begun or board.finished:
            return
        passed = now - last
        if passed <= 0:
            self.set_back = self.set_back or passed < 0
            return
        counted = min(passed, max(_LONGEST_LOOK_S, _LOOKS * self.usual_look_s))
        self.usual_look_s += (counted - self.usual_look_s) * 0.2
        self.silent_s += counted
        if board.t is not None and not self.set_back:
            # What was looked at before the newest step came in late; it says nothing of silence.
            self.silent_s = min(self.silent_s, max(0.0, now - board.t))
        limit = limit_s(board, pace)
        if self.silent_s > limit:
            self._tell(board, limit, pace)

    def restart(self) -> None:
        self.silent_s = 0.0

    def _tell(self, board: Board, limit: float, pace: Pace) -> None:
        found = board.ledger.open(
            "stall",
            board.step,
            "warning",
            step=board.step,
            confidence=0.8,
            values={"limit_s": limit, "p99_interval_s": pace.p99_s},
        )
        found.values["silent_s"] = self.silent_s
        if self.silent_s > _LONG * limit:
            found.grow("critical")
            found.confidence = 0.95


def limit_s(board: Board, pace: Pace) -> float:
    """Seconds of silence that are still no stall."""
    if board.steps_seen == 0:
        return _START_S
    limit = max(_LEAST_S, _TIMES_P99 * pace.p99_s)
    if len(pace.intervals) < _FEW_INTERVALS:
        limit = max(limit, _FEW_S)
    if pace.paused or pace.pause_is_due(board.step) or _pause_is_due(board):
        limit = max(limit, _TIMES_PAUSE * pace.longest_pause_s or _FIRST_PAUSE_S)
    return limit


def _pause_is_due(board: Board) -> bool:
    settings = board.settings
    every = (settings.eval_every_steps, settings.checkpoint_every_steps)
    return any(interval and board.step % interval == 0 for interval in every) or (
        board.step >= (board.target_step or settings.steps or board.step + 1)
    )
