"""The policy diverges from its reference model: `kl_blowup`.

In reinforcement learning from rewards a penalty on the KL divergence keeps the policy near its
reference model. The KL rises from 0 in every training, and single steps may jump: its usual
estimator (Schulman 2020, joschu.net/blog/kl-approx.html) grows exponentially with a rare token. So
the median of the newest 8 points decides: it has to be ten times the median of the 64 before and
above the range of successful trainings, or ten times above that range however slowly it rose.
GRPO's `kl` is per token: DeepSeekMath (arXiv:2402.03300) stays well below 1 nat. The KL of whole
answers (`objective/kl`, KTO's `kl`) is kept at 6 to 20 nats by the usual adaptive penalties
(Ziegler et al. 2019, arXiv:1909.08593; TRL).

A divergence is never below 0; its estimate is so by chance for a few steps at most. Where it is
for 16 in a row, and by more than a hundredth of the normal range, answers are not sampled from the
policy that is trained: `kl_negative`. TRL warns of it too: its usual reason is a temperature,
`top_k` or least length of generation that the training does not use.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.detectors.detector import PHASE, REWIND, Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.window import Window, median_of

KEYS = ("kl", "objective/kl")
_NEWEST = 8
_MIN_POINTS = 16
_TIMES = 10.0
_PER_TOKEN, _PER_ANSWER = 1.0, 20.0
_PER_TOKEN_METHODS = ("grpo",)
_MIN_KL = 1e-6
_CLEARLY_NEGATIVE, _NEGATIVE_IN_A_ROW = 0.01, 16


_CODES = {
    "kl_blowup": Code(
        "The policy diverges from its reference: the KL divergence rose far above its usual level.",
        ("{key} {kl}, {kl_usual} before", "lr {lr}"),
        ("Read samples: if they are gibberish or all the same, the policy has collapsed.",),
        remedies=("rewind_raise_beta", "rewind_halve_lr", "rewind_tighter_clip"),
        announces_rewind=True,
        closed_by=(REWIND, PHASE),
    ),
    "kl_negative": Code(
        "The KL divergence stays below 0, which no divergence is: the answers are not sampled from "
        "the policy as it is trained.",
        ("{key} {kl} at {points} points in a row",),
        (
            "Generate without what the training does not use: temperature 1, top_k 0, top_p 1, no "
            "least length; and pad and mask as the training does.",
            "Check that the model that generates has the newest weights.",
        ),
        closed_by=(REWIND, PHASE),
    ),
}


@dataclass(slots=True)
class KlBlowup(Detector):
    """`newest` are not yet part of `before`; `usual` is the median of `before`; `high_since` is
    the first step of those above the normal range."""

    codes = _CODES
    reads = KEYS
    restarts_with_phase = True

    key: str = ""
    newest: deque[float] = field(default_factory=lambda: deque(maxlen=_NEWEST))
    before: Window = field(default_factory=Window)
    usual: float = 0.0
    high_since: int | None = None
    negative: int = 0
    negative_since: int = 0

    def point(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        if self.key and key != self.key:
            return
        self.key = key
        limit = _normal_limit(context, key)
        self._follow_negative(context, step, value, limit)
        self._follow(step, value, limit)
        entry = context.ledger.get("kl_blowup")
        if len(self.newest) == _NEWEST and entry is None:
            self.before.add(self.newest[0])
        self.newest.append(value)
        if len(self.newest) < _NEWEST:
            return
        median = median_of(sorted(self.newest))
        if entry is None and len(self.before) >= _MIN_POINTS:
            self.usual = self.before.median
        grown = len(self.before) >= _MIN_POINTS and median > _TIMES * max(self.usual, _MIN_KL)
        if (median > limit and grown) or median > _TIMES * limit:
            self._report(context, step, median, limit)
        elif entry is not None and median < limit:
            context.ledger.close("kl_blowup", step)

    def restart(self, context: DetectorContext, step: int) -> None:
        self.newest.clear()
        self.before.clear()
        self.usual, self.high_since, self.negative = 0.0, None, 0

    def _follow_negative(
        self, context: DetectorContext, step: int, value: float, limit: float
    ) -> None:
        if value >= 0:
            self.negative = 0
            context.ledger.close("kl_negative", step)
            return
        if self.negative == 0:
            self.negative_since = step
        self.negative += 1
        # The newest value is not among them yet.
        median = median_of(sorted(self.newest)) if self.newest else 0.0
        if self.negative < _NEGATIVE_IN_A_ROW or median >= -_CLEARLY_NEGATIVE * limit:
            return
        entry = context.ledger.open(
            "kl_negative",
            self.negative_since,
            "warning",
            step=self.negative_since,
            confidence=0.8,
            values={"key": self.key},
        )
        entry.values |= {"kl": median, "points": self.negative}

    def _follow(self, step: int, value: float, limit: float) -> None:
        if value <= limit:
            self.high_since = None
        elif self.high_since is None:
            self.high_since = step

    def _report(self, context: DetectorContext, step: int, median: float, limit: float) -> None:
        onset = step if self.high_since is None else self.high_since
        entry = context.ledger.get("kl_blowup") or context.ledger.open(
            "kl_blowup",
            onset,
            "warning",
            step=onset,
            confidence=0.85,
            values={"key": self.key, "kl_usual": self.usual},
            remedies=_CODES["kl_blowup"].remedies,
        )
        entry.values |= {"kl": median, "lr": context.latest.get("lr"), "last_step": step}
        if median > _TIMES * limit:
            entry.grow("critical")


def _normal_limit(context: DetectorContext, key: str) -> float:
    per_token = context.settings.config.get("method") in _PER_TOKEN_METHODS or context.is_reinforced
    return _PER_TOKEN if key == "kl" and per_token else _PER_ANSWER
