"""The loss does not fall any more: `plateau`, for information only.

W&B's diagnosis called a healthy slow run (3.3 to 3.2) converged and told to stop it: a small
difference says nothing without the noise that it stands in. Here the second half of the attempt, as
16 to 32 block means, must show no falling trend at all (Mann-Kendall z >= 0), and a fall of 0.3 %
over that half must lie three standard errors away. Neither may the validation loss improve by
0.2 %. Never in the last tenth of a run, where the learning rate is at its end, and never with a
patch: what to make of it is the operator's choice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.detectors.detector_context import Board
from trainer_runtime.core.diagnosis.detectors.trend import Trend, line_through, mann_kendall_z

_FEWEST_POINTS = 1000
_FALLING_Z = -3.0
_FALL, _ERRORS = 0.003, 3.0
_IMPROVED = 0.998
_LAST_SHARE = 0.9


@dataclass(slots=True)
class Plateau:
    trend: Trend = field(default_factory=lambda: Trend(per_block=8))
    evaluations: Trend = field(default_factory=lambda: Trend(per_block=1))

    def point(self, board: Board, step: int, value: float) -> None:
        if not self.trend.add(step, value) or self.trend.points < _FEWEST_POINTS:
            return
        half = len(self.trend.means) // 2
        z = mann_kendall_z(self.trend.means[half:])
        found = board.ledger.get("plateau")
        if found is not None:
            if z < _FALLING_Z:
                board.ledger.close("plateau", step)
            return
        xs, means = self.trend.xs, self.trend.means
        if z < 0 or not _is_flat(xs[half:], means[half:]) or _rises(means, half):
            return
        if self._is_ending(board, step) or self._still_improves(xs[half]):
            return
        since = round(xs[half])
        board.ledger.open(
            "plateau",
            since,
            "info",
            step=since,
            confidence=0.6,
            values={"loss": means[-1], "since_step": since, "lr": board.latest.get("lr")},
        )

    def evaluation(self, step: int, value: float) -> None:
        self.evaluations.add(step, value)

    def restart(self) -> None:
        self.trend, self.evaluations = Trend(per_block=8), Trend(per_block=1)

    def _is_ending(self, board: Board, step: int) -> bool:
        target = board.target_step or board.settings.steps
        return target is not None and step > _LAST_SHARE * target

    def _still_improves(self, since: float) -> bool:
        """Whether the validation loss is lower than it was when the second half began."""
        pairs = list(zip(self.evaluations.xs, self.evaluations.means, strict=True))
        before = [value for x, value in pairs if x <= since]
        after = [value for x, value in pairs if x > since]
        return bool(before and after) and min(after) < _IMPROVED * min(before)


def _is_flat(xs: list[float], means: list[float]) -> bool:
    """Whether the noise leaves no room for a fall that would be worth waiting for."""
    slope, error = line_through(xs, means)
    fall = (_ERRORS * error - slope) * (xs[-1] - xs[0])
    return fall < _FALL * abs(means[-1])


def _rises(means: list[float], half: int) -> bool:
    """Whether the second half lies above the first: that is no plateau."""
    first, second = min(means[:half]), min(means[half:])
    return second > 1.02 * first
