"""No checkpoint for too long: `checkpoint_overdue`.

The limit is twice the configured interval, in steps or in seconds of work (pauses and clock changes
don't count), plus three minutes for writing. Without a known configuration it is three times the
longest interval between saves, once three saves were seen: many scripts save irregularly.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.detectors.detector import END, REWIND, Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.protocol.duration import parse_duration
from trainer_runtime.core.protocol.trainer_lines import Decided

_TIMES = 2.0
_WRITING_S = 180.0
_TIMES_LEARNT = 3.0
_LEARNT_FROM = 3
_FAR = 2.0  # times the limit


_CODES = {
    "checkpoint_overdue": Code(
        "No checkpoint for much longer than planned: a crash now would lose all work since then.",
        ("{steps_since} steps and {hours_since} hours of work since step {saved_step}",),
        ("Check the log and the disk: a save may hang or fail.",),
        closed_by=(REWIND, END),
    ),
}


@dataclass(slots=True)
class Checkpoints(Detector):
    """`every_s` and `every_steps`: the interval that the trainer chose, where it reported one."""

    codes = _CODES
    events = ("checkpoint", "decision")

    saved_step: int = 0
    saved_worked_s: float = 0.0
    saves: int = 0
    longest_steps: int = 0
    every_s: float | None = None
    every_steps: int | None = None

    def event(self, context: DetectorContext, kind: str, step: int, fields: Fields) -> None:
        if kind == "decision":
            self._decided(Decided.of(fields))
        elif fields.text("action", "saved") == "saved":
            self._saved(context, step)

    def _saved(self, context: DetectorContext, step: int) -> None:
        if self.saves:
            self.longest_steps = max(self.longest_steps, step - self.saved_step)
        self.saves += 1
        self.saved_step, self.saved_worked_s = step, context.worked_s
        context.ledger.close("checkpoint_overdue", step)

    def step(self, context: DetectorContext, step: int) -> None:
        settings = context.settings
        over = 0.0
        every_steps = self.every_steps or settings.checkpoint_every_steps
        every_s = self.every_s or settings.checkpoint_every_s
        if every_s is not None:
            worked = context.worked_s - self.saved_worked_s
            over = worked / (_TIMES * every_s + _WRITING_S)
        elif every_steps is not None:
            over = (step - self.saved_step) / (_TIMES * every_steps)
        elif self.saves >= _LEARNT_FROM and self.longest_steps > 0:
            over = (step - self.saved_step) / (_TIMES_LEARNT * self.longest_steps)
        if over > 1 and context.ledger.get("checkpoints_unmatched") is None:
            self._report(context, step, over)

    def _decided(self, decided: Decided) -> None:
        """The trainer chose how often it saves: a number of steps, or a duration."""
        every = decided.value
        if decided.what != "checkpoint_every" or every is None:
            return
        with suppress(ValueError):
            self.every_s = parse_duration(every) if isinstance(every, str) else None
            self.every_steps = every if isinstance(every, int) else None

    def restart(self, context: DetectorContext, step: int) -> None:
        self.saved_step, self.saved_worked_s, self.saves = step, 0.0, 0

    def _report(self, context: DetectorContext, step: int, over: float) -> None:
        entry = context.ledger.open(
            "checkpoint_overdue",
            self.saved_step,
            "warning",
            step=self.saved_step,
            confidence=0.85,
            values={"saved_step": self.saved_step},
        )
        entry.values |= {
            "steps_since": step - self.saved_step,
            "hours_since": (context.worked_s - self.saved_worked_s) / 3600,
            "last_step": step,
        }
        if over > _FAR:
            entry.grow("critical")
