"""The loss has stopped falling: `plateau`, for information only.

W&B's diagnosis called a healthy slow run (3.3 to 3.2) converged and advised stopping it: a small
difference means nothing without the noise around it. Here the second half of the attempt, as 16 to
32 block means, must show no falling trend at all (Mann-Kendall z >= 0), and a fall of 0.3 % over
that half must lie three standard errors away. The validation loss must not have improved by 0.2 %
either. Never reported in the last tenth of a run, where the learning rate has decayed, and never
with a patch: the operator decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.detectors.detector import PHASE, REWIND, Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.trend import Trend, line_through, mann_kendall_z

_MIN_POINTS = 1000
_FALLING_Z = -3.0
_FALL, _ERRORS = 0.003, 3.0
_IMPROVED = 0.998
_LAST_SHARE = 0.9


_CODES = {
    "plateau": Code(
        "The loss has not fallen for half of the attempt. That alone is not a reason to stop: it "
        "often falls further once the learning rate decays.",
        ("loss {loss}, no decrease since step {since_step}", "lr {lr}"),
        ("Check the schedule first: the loss often falls further once the learning rate decays.",),
        closed_by=(REWIND, PHASE),
    ),
}


@dataclass(slots=True)
class Plateau(Detector):
    codes = _CODES
    judges_learning = True
    reads = ("loss", "val_loss")
    restarts_with_phase = True

    trend: Trend = field(default_factory=lambda: Trend(per_block=8))
    evaluations: Trend = field(default_factory=lambda: Trend(per_block=1))

    def point(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        if key == "val_loss":
            self.evaluations.add(step, value)
            return
        if not self.trend.add(step, value) or self.trend.points < _MIN_POINTS:
            return
        half = len(self.trend.means) // 2
        z = mann_kendall_z(self.trend.means[half:])
        entry = context.ledger.get("plateau")
        if entry is not None:
            if z < _FALLING_Z:
                context.ledger.close("plateau", step)
            return
        xs, means = self.trend.xs, self.trend.means
        if z < 0 or not _is_flat(xs[half:], means[half:]) or _rises(means, half):
            return
        if self._is_ending(context, step) or self._still_improves(xs[half]):
            return
        since = round(xs[half])
        context.ledger.open(
            "plateau",
            since,
            "info",
            step=since,
            confidence=0.6,
            values={"loss": means[-1], "since_step": since, "lr": context.latest.get("lr")},
        )

    def _is_ending(self, context: DetectorContext, step: int) -> bool:
        target = context.target_step or context.settings.steps
        return target is not None and step > _LAST_SHARE * target

    def _still_improves(self, since: float) -> bool:
        """Whether the validation loss is lower than it was when the second half began."""
        pairs = list(zip(self.evaluations.xs, self.evaluations.means, strict=True))
        before = [value for x, value in pairs if x <= since]
        after = [value for x, value in pairs if x > since]
        return bool(before and after) and min(after) < _IMPROVED * min(before)


def _is_flat(xs: list[float], means: list[float]) -> bool:
    """Whether a fall worth waiting for lies outside the noise."""
    slope, error = line_through(xs, means)
    fall = (_ERRORS * error - slope) * (xs[-1] - xs[0])
    return fall < _FALL * abs(means[-1])


def _rises(means: list[float], half: int) -> bool:
    """Whether the second half lies above the first, which is not a plateau."""
    first, second = min(means[:half]), min(means[half:])
    return second > 1.02 * first
