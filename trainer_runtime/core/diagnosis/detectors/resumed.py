"""The loss differs after a resume: `resume_mismatch`.

The optimizer state, the schedule, the data position or the weights were not restored completely
(transformers#33336: the loss jumps after every resume). The median of the first eight losses is
compared with the median at the checkpoint, or with the last one recorded before (every 32 points).
It must differ by 1.12 x, up or down, and by 8 robust deviations, as for a spike. An attempt that
changes rate, batch or data itself has its own loss.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.detectors.detector import Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.window import mad_z, median_of, times
from trainer_runtime.core.protocol.states import REHEARSED_KILL

_NOTED_EVERY = 32  # points
_JUDGED_POINTS = 8
_MIN_BEFORE = 8
_RATIO = 1.12
_MIN_CHANGE = 0.05  # nats
_Z = 8.0
_MAX_LEVELS = 128
_NEAR = 0.8  # a level counts if it was recorded at this share of the resume's step or later
_CODE = "resume_mismatch"
_CHANGE_THE_LOSS = frozenset({"optimizer", "schedule", "batch", "data"})

Level = tuple[int, float, float, float]


_CODES = {
    "resume_mismatch": Code(
        "The loss differs after the resume: part of the state was not restored, or the data "
        "changed.",
        (
            "loss {loss} after the resume, {loss_before} at step {before_step}: {factor} times",
            "lr {lr}, {lr_before} then",
        ),
        ("Check that optimizer, schedule, data position and scaler were restored.",),
        remedies=("rewind",),
    ),
}


@dataclass(slots=True)
class Resumed(Detector):
    """`levels` are (step, median, MAD, lr) of the loss at checkpoints and every 32 points; `before`
    is the level to compare with, `first` are the losses since the resume. `is_changed`: the attempt
    changes on purpose what may change the loss."""

    codes = _CODES
    reads = ("loss",)
    events = ("attempt_starting", "checkpoint")

    levels: deque[Level] = field(default_factory=lambda: deque(maxlen=_MAX_LEVELS))
    before: deque[Level] = field(default_factory=lambda: deque(maxlen=1))
    since: int = 0
    first: list[float] = field(default_factory=list)
    is_changed: bool = False

    def _note(self, context: DetectorContext, step: int) -> None:
        """Record the level of the loss at `step`, from which a resume may start."""
        window = context.loss.window
        if len(window) < _MIN_BEFORE:
            return
        lr = context.latest.get("lr", 0.0)
        self.levels.append((step, window.median, window.mad, lr))

    def restart(self, context: DetectorContext, step: int) -> None:
        """The run continues from `step`; later levels are superseded."""
        self._note(context, context.step)
        kept = [level for level in self.levels if level[0] <= step]
        self.levels.clear()
        self.levels.extend(kept)
        self.before.clear()
        self.before.extend(level for level in kept[-1:] if level[0] >= _NEAR * step)
        self.since, self.first = step, []

    def event(self, context: DetectorContext, kind: str, step: int, fields: Fields) -> None:
        if kind == "attempt_starting":
            # The losses of a rehearsal are compared step by step.
            is_rehearsed = fields.text("why", "") == REHEARSED_KILL
            self.is_changed = is_rehearsed or changes_the_loss(fields.open_map("set"))
        elif fields.text("action", "saved") == "saved":
            self._note(context, step)

    def point(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        """Take in a loss; only the first few after a resume are compared."""
        if context.loss.points % _NOTED_EVERY == 0:
            self._note(context, step)
        if self.before:
            self._compare(context, value)

    def _compare(self, context: DetectorContext, value: float) -> None:
        self.first.append(value)
        if len(self.first) < _JUDGED_POINTS:
            return
        at, median, mad, lr = self.before.pop()
        now = median_of(sorted(self.first))
        away = max(times(now, median), times(median, now)) if now > 0 and median > 0 else 1.0
        far = abs(mad_z(now, median, mad)) if now > median else abs(mad_z(median, now, mad))
        if self.is_changed or away <= _RATIO or abs(now - median) < _MIN_CHANGE or far <= _Z:
            return
        context.ledger.open(
            _CODE,
            self.since,
            "warning",
            step=self.since,
            confidence=0.8,
            values={
                "loss_before": median,
                "before_step": at,
                "loss": now,
                "factor": times(now, median),
                "lr_before": lr or None,
                "lr": context.latest.get("lr"),
            },
            remedies=_CODES[_CODE].remedies,
        )


def changes_the_loss(sets: Mapping[str, object]) -> bool:
    """Whether the loss may differ because an attempt sets these fields, by dotted name."""
    return any(name.partition(".")[0] in _CHANGE_THE_LOSS for name in sets)
