"""Nothing is learnt, though steps continue: `not_learning`.

A step changes the model by the learning rate times the gradient: where either is exactly 0 at every
point, or the loss is, the training is dead however healthy its log seems. Exact zeros alone count,
and rounding is ruled out: a loss of 0 beside a gradient above 0 is a small one, a rate or a norm of
0 beside a loss that falls is one printed with few digits. In GRPO the loss is 0 at the start
(`detectors.py`), so there the gradient decides, and not where all rewards are alike
(`reward_collapse`). The same loss for 50 points is a dead training too, unless its bar repeats each
value for long.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.detectors.detector import REWIND, Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.ledger import Value
from trainer_runtime.core.diagnosis.detectors.window import mean_of
from trainer_runtime.core.protocol.figures import rounded

CODE = "not_learning"
_BOTH = 5  # points at which two of them are 0
_ZERO_LOSSES = 10
_ZEROS = 32  # a schedule's end may be a few points early
_SAME = 50
_TIMES_LONGEST = 4
_FIRST = 8
_FALLS, _FALLS_CLEARLY = 0.95, 0.85
_NOT_ROUNDED = 0.1  # a norm that is printed as 0 right after this one is 0


@dataclass(slots=True)
class Repeat:
    """How often the newest value of a series was repeated: `points` times since step `since`.

    `longest` is the longest earlier repetition, `before` the value before this one. `most` repeats
    of a value that is not 0 are normal.
    """

    most: int = field(default=1 << 62, metadata={"derived": True})
    value: float | None = None
    points: int = 0
    since: int = 0
    longest: int = 0
    before: float | None = None

    def take(self, step: int, value: float) -> bool:
        """Whether the value is repeated for so long that the causes are to be judged."""
        if value == self.value:
            self.points += 1
            return self.points >= (self.most if value else _BOTH)
        self.longest = max(self.longest, self.points)
        self.before, self.value, self.points, self.since = self.value, value, 1, step
        return False

    def zeros(self) -> int:
        """The number of points in a row, up to the newest, that are 0."""
        return self.points if self.value == 0 else 0


_CODES = {
    "not_learning": Code(
        "Nothing is learnt, though steps continue.",
        ("{points} points in a row", "loss {loss}", "gradient norm {grad_norm}", "lr {lr}"),
        (
            "Stop it, and print one batch: its labels, which of them are masked, and which "
            "parameters require a gradient.",
            "Check that optimizer and schedule are stepped, with the rate that was meant.",
        ),
        closed_by=(REWIND,),
    ),
}


@dataclass(slots=True)
class NotLearning(Detector):
    """`first` are the first losses of the attempt; `is_open`: there is a cause."""

    codes = _CODES
    judges_learning = True
    reads_finite = ("loss", "grad_norm", "lr")

    loss: Repeat = field(default_factory=lambda: Repeat(most=_SAME))
    grad_norm: Repeat = field(default_factory=Repeat)
    lr: Repeat = field(default_factory=Repeat)
    first: list[float] = field(default_factory=list)
    is_open: bool = False

    def finite(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        if key == "loss":
            series = self.loss
            if len(self.first) < _FIRST:
                self.first.append(value)
        else:
            series = self.grad_norm if key == "grad_norm" else self.lr
        is_long = series.take(step, value)
        if not (is_long or self.is_open):
            return
        entry, cause = context.ledger.get(CODE), self._cause(context)
        self.is_open = cause is not None
        if cause is not None:
            self._report(context, cause)
        elif entry is not None:
            if entry.values.get("cause") == "same_loss":
                context.ledger.withdraw(CODE)  # a bar that repeats each value for long
            else:
                context.ledger.close(CODE, step)

    def _cause(self, context: DetectorContext) -> str | None:
        losses, norms, rates = self.loss.zeros(), self.grad_norm.zeros(), self.lr.zeros()
        if not context.is_reinforced:
            if min(losses, norms) >= _BOTH:
                return "zero_loss_and_gradient"
            if min(losses, rates) >= _BOTH and self._has_no_gradient():
                return "zero_loss_and_rate"
            if losses >= _ZERO_LOSSES and self.loss.longest == 0 and self._has_no_gradient():
                return "zero_loss"
        if self._is_zero_gradient(context, norms):
            return "zero_gradient"
        if self._is_zero_rate(context, rates):
            return "zero_rate"
        return None if context.is_reinforced or not self._is_same_loss() else "same_loss"

    def _has_no_gradient(self) -> bool:
        return not self.grad_norm.value

    def _is_zero_gradient(self, context: DetectorContext, points: int) -> bool:
        if context.ledger.get("reward_collapse") is not None or self._falls(context):
            return False
        is_zero = self.grad_norm.before is None or self.grad_norm.before >= _NOT_ROUNDED
        return points >= _ZEROS and is_zero

    def _is_zero_rate(self, context: DetectorContext, points: int) -> bool:
        if len(self.first) < _FIRST and not context.is_reinforced:
            return False
        if self.lr.before is None:
            return points >= _ZEROS and not self._falls(context)
        return points >= _ZEROS and not _is_last_digit(self.lr.before)

    def _is_same_loss(self) -> bool:
        value, points = self.loss.value, self.loss.points
        if not value or points < _SAME or points < _TIMES_LONGEST * self.loss.longest:
            return False
        return rounded(value, 2) != value

    def _falls(self, context: DetectorContext) -> bool:
        """Whether the newest losses lie below the first ones; by more where that is a relief, as
        scatter would close and open a finding in turns."""
        if len(self.first) < _FIRST or not context.losses:
            return False
        newest = mean_of([value for _, value in context.losses])
        first = mean_of(self.first)
        share = _FALLS_CLEARLY if context.ledger.get(CODE) else _FALLS
        return newest < first - (1 - share) * abs(first)

    def _report(self, context: DetectorContext, cause: str) -> None:
        loss, norm, rate = self.loss, self.grad_norm, self.lr
        of_cause = {"zero_gradient": norm, "zero_rate": rate}.get(cause, loss)
        values: dict[str, Value] = {"cause": cause}
        values |= {"loss": loss.value, "grad_norm": norm.value, "lr": rate.value}
        both = cause in ("zero_loss_and_gradient", "zero_loss_and_rate")
        entry = context.ledger.open(
            CODE,
            of_cause.since,
            "critical" if both else "warning",
            step=of_cause.since,
            confidence=0.9 if both else 0.75,
            values=values,
        )
        entry.values["points"] = of_cause.points


def _is_last_digit(rate: float) -> bool:
    """Whether a rate may be the smallest that its log can print, as 0.0001 with four digits."""
    return rate > 0 and rounded(rate, 1) == rate and repr(rate).strip("0.").startswith("1")
