"""The policy runs away from its reference: `kl_blowup`.

Reinforcement from rewards is held near the model that it began with by a penalty on the KL
divergence. That rises from 0 in every training, and single steps may jump: its usual estimator
(Schulman 2020, joschu.net/blog/kl-approx.html) grows exponentially with a rare token. So the median
of the newest 8 points is looked at: where it is ten times the median of the 64 before and above
what trainings that went well come to, or ten times above that, at whatever pace it came. GRPO's
`kl` is per token: DeepSeekMath (arXiv:2402.03300) stays well below 1 nat. Whole answers' KL
(`objective/kl`, KTO's `kl`) is kept at 6 to 20 nats by the adaptive penalties in use (Ziegler et
al. 2019, arXiv:1909.08593; TRL).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.detectors.detector_context import Board
from trainer_runtime.core.diagnosis.detectors.window import Window, median_of
from trainer_runtime.core.diagnosis.remedies import OF_SERIES

KEYS = ("kl", "objective/kl")
_NEWEST = 8
_FEWEST = 16
_TIMES = 10.0
_PER_TOKEN, _PER_ANSWER = 1.0, 20.0
_PER_TOKEN_METHODS = ("grpo",)
_LEAST = 1e-6


@dataclass(slots=True)
class KlBlowup:
    """`newest` are not yet in `before`; `low_step` is the last step that was as usual."""

    key: str = ""
    newest: deque[float] = field(default_factory=lambda: deque(maxlen=_NEWEST))
    before: Window = field(default_factory=Window)
    usual: float = 0.0
    high_since: int | None = None

    def point(self, board: Board, key: str, step: int, value: float) -> None:
        if self.key and key != self.key:
            return
        self.key = key
        floor = _floor(board, key)
        self._follow(step, value, floor)
        found = board.ledger.get("kl_blowup")
        if len(self.newest) == _NEWEST and found is None:
            self.before.add(self.newest[0])
        self.newest.append(value)
        if len(self.newest) < _NEWEST:
            return
        median = median_of(sorted(self.newest))
        if found is None and len(self.before) >= _FEWEST:
            self.usual = self.before.median
        grown = len(self.before) >= _FEWEST and median > _TIMES * max(self.usual, _LEAST)
        if (median > floor and grown) or median > _TIMES * floor:
            self._tell(board, step, median, floor)
        elif found is not None and median < floor:
            board.ledger.close("kl_blowup", step)

    def restart(self) -> None:
        self.newest.clear()
        self.before.clear()
        self.usual, self.high_since = 0.0, None

    def _follow(self, step: int, value: float, floor: float) -> None:
        if value <= floor:
            self.high_since = None
        elif self.high_since is None:
            self.high_since = step

    def _tell(self, board: Board, step: int, median: float, floor: float) -> None:
        onset = step if self.high_since is None else self.high_since
        found = board.ledger.get("kl_blowup") or board.ledger.open(
            "kl_blowup",
            onset,
            "warning",
            step=onset,
            confidence=0.85,
            values={"key": self.key, "kl_usual": self.usual},
            remedies=OF_SERIES["kl_blowup"],
        )
        found.values |= {"kl": median, "lr": board.latest.get("lr"), "last_step": step}
        if median > _TIMES * floor:
            found.grow("critical")


def _floor(board: Board, key: str) -> float:
    per_token = board.settings.config.get("method") in _PER_TOKEN_METHODS or board.is_reinforced
    return _PER_TOKEN if key == "kl" and per_token else _PER_ANSWER
