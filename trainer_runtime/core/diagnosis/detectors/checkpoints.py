"""No checkpoint for too long: `checkpoint_overdue`.

Too long is twice what the configuration says, counted in steps or in seconds of work (pauses and
clocks that are set don't count), with three minutes for the writing. Where nobody knows the
configuration, three times the longest distance between saves, once three of them were seen: many
scripts save at odd moments.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.diagnosis.detectors.detector_context import Board

_TIMES = 2.0
_WRITING_S = 180.0
_TIMES_LEARNT = 3.0
_LEARNT_FROM = 3
_FAR = 2.0  # times the limit


@dataclass(slots=True)
class Checkpoints:
    """`every_s` and `every_steps` are what the trainer has decided itself, where it told."""

    saved_step: int = 0
    saved_worked_s: float = 0.0
    saves: int = 0
    longest_steps: int = 0
    every_s: float | None = None
    every_steps: int | None = None

    def saved(self, board: Board, step: int) -> None:
        if self.saves:
            self.longest_steps = max(self.longest_steps, step - self.saved_step)
        self.saves += 1
        self.saved_step, self.saved_worked_s = step, board.worked_s
        board.ledger.close("checkpoint_overdue", step)

    def point(self, board: Board, step: int) -> None:
        """A new step was logged."""
        settings = board.settings
        over = 0.0
        every_steps = self.every_steps or settings.checkpoint_every_steps
        every_s = self.every_s or settings.checkpoint_every_s
        if every_s is not None:
            worked = board.worked_s - self.saved_worked_s
            over = worked / (_TIMES * every_s + _WRITING_S)
        elif every_steps is not None:
            over = (step - self.saved_step) / (_TIMES * every_steps)
        elif self.saves >= _LEARNT_FROM and self.longest_steps > 0:
            over = (step - self.saved_step) / (_TIMES_LEARNT * self.longest_steps)
        if over > 1:
            self._tell(board, step, over)

    def decided(self, every: int | str, seconds: float | None) -> None:
        """The trainer has decided how often it saves: a number of steps, or a duration."""
        self.every_s = seconds
        self.every_steps = every if isinstance(every, int) else None

    def restart(self, step: int) -> None:
        """The attempt begins at `step`, from a checkpoint or from nothing."""
        self.saved_step, self.saved_worked_s, self.saves = step, 0.0, 0

    def _tell(self, board: Board, step: int, over: float) -> None:
        found = board.ledger.open(
            "checkpoint_overdue",
            self.saved_step,
            "warning",
            step=self.saved_step,
            confidence=0.85,
            values={"saved_step": self.saved_step},
        )
        found.values |= {
            "steps_since": step - self.saved_step,
            "hours_since": (board.worked_s - self.saved_worked_s) / 3600,
            "last_step": step,
        }
        if over > _FAR:
            found.grow("critical")
