"""All answers get the same reward: `reward_collapse`.

GRPO learns from the differences between the answers to one prompt (arXiv:2402.03300, section 4.1):
where a group's rewards are equal, its advantages and its gradient are 0. The finding needs that for
nearly all groups (`frac_reward_zero_std`, else a `reward_std` below a thousandth of the rewards) at
16 points in a row. With the reward at its best the task is solved, which is information and not a
fault; below it, or where no reward ever differed (for 32 points, or for 16 at which every answer
was cut off), the policy has nothing to learn from. DAPO
(arXiv:2503.14476, section 3.2) counts such groups and leaves them out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.detectors.detector import PHASE, REWIND, Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.window import mean_of

_CLIPPED = "completions/clipped_ratio"
KEYS = ("reward", "reward_std", "frac_reward_zero_std", _CLIPPED)
_IN_A_ROW = 16
_MIN_FROM_START = 32
_ALIKE = 0.95
_SMALL = 1e-3
_AT_ITS_BEST = 0.9
_APART_AGAIN = 4


_CODES = {
    "reward_collapse": Code(
        "All answers to a prompt get the same reward, so there is nothing to learn from.",
        (
            "reward {reward}, {best_reward} at its best; identical for {points} points",
            "the reward is at its best since step {solved_at}: the task seems to be solved",
            "every answer was cut off at its greatest length for {clipped} points",
        ),
        (
            "Read samples and their rewards: a failing reward function gives all the same reward.",
            "Where answers are cut off, raise max_completion_length, or see why they do not end.",
            "Use harder prompts, more generations per prompt or a higher temperature.",
        ),
        remedies=("rewind_raise_beta", "rewind_halve_lr"),
        announces_rewind=True,
        closed_by=(REWIND, PHASE),
    ),
}


@dataclass(slots=True)
class Rewards(Detector):
    """`best` and `worst` are extremes of the mean of 16 rewards; `alike` counts points in a row
    without a difference, since step `alike_since`; `apart` counts those with one; `differed`: a
    difference was seen. `clipped` counts points in a row at which every answer was cut off.
    `has_share`: the run logs `frac_reward_zero_std`."""

    codes = _CODES
    reads = KEYS
    reads_raw = KEYS
    restarts_with_phase = True

    rewards: deque[float] = field(default_factory=lambda: deque(maxlen=_IN_A_ROW))
    best: float | None = None
    worst: float | None = None
    has_share: bool = False
    differed: bool = False
    alike: int = 0
    alike_since: int = 0
    apart: int = 0
    clipped: int = 0

    def raw(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        context.is_reinforced = True  # also where the configuration is unknown

    def point(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        if key == "reward":
            self._reward(value)
        elif key == _CLIPPED:
            self.clipped = self.clipped + 1 if value >= 1 else 0
        elif key == "frac_reward_zero_std":
            self.has_share = True
            self._judge(context, step, value >= _ALIKE)
        elif not self.has_share:
            size = abs(self.rewards[-1]) if self.rewards else 0.0
            self._judge(context, step, value <= _SMALL * max(size, _SMALL))

    def restart(self, context: DetectorContext, step: int) -> None:
        self.rewards.clear()
        self.best = self.worst = None
        self.alike = self.apart = 0
        self.differed = False

    def _reward(self, value: float) -> None:
        self.rewards.append(value)
        if len(self.rewards) == _IN_A_ROW:
            mean = mean_of(self.rewards)
            self.best = mean if self.best is None else max(mean, self.best)
            self.worst = mean if self.worst is None else min(mean, self.worst)

    def _judge(self, context: DetectorContext, step: int, is_alike: bool) -> None:
        if not is_alike:
            self.alike, self.apart, self.differed = 0, self.apart + 1, True
            if self.apart >= _APART_AGAIN:
                context.ledger.close("reward_collapse", step)
            return
        if self.alike == 0:
            self.alike_since = step
        self.alike, self.apart = self.alike + 1, 0
        is_known = self.differed or self.clipped >= _IN_A_ROW
        if self.alike >= (_IN_A_ROW if is_known else _MIN_FROM_START):
            self._report(context, step)

    def _report(self, context: DetectorContext, step: int) -> None:
        if context.ledger.get("reward_collapse") is not None:
            return
        solved = self.differed and self._is_at_its_best()
        entry = context.ledger.open(
            "reward_collapse",
            self.alike_since,
            "info" if solved else "warning",
            step=self.alike_since,
            confidence=0.6 if solved else 0.85,
            remedies=() if solved or not self.differed else _CODES["reward_collapse"].remedies,
        )
        now = mean_of(self.rewards) if self.rewards else None
        entry.values |= {"reward": now, "best_reward": self.best, "points": self.alike}
        entry.values |= {"clipped": self.clipped} if self.clipped else {}
        if solved:
            entry.values["solved_at"] = self.alike_since

    def _is_at_its_best(self) -> bool:
        """Whether the reward is still near its best, measured from its worst."""
        if self.best is None or self.worst is None or not self.rewards:
            return False
        way = self.best - self.worst
        return way > 0 and mean_of(self.rewards) >= self.worst + _AT_ITS_BEST * way
