"""The preference is over-optimised: `over_optimization`.

DPO and similar methods keep widening the margin after the answers stopped improving, at a growing
distance from the reference model (Rafailov et al. 2024, "Scaling laws for reward model
over-optimization in direct alignment algorithms", arXiv:2406.02900); the chosen answers themselves
become unlikely (Razin et al. 2024, "Unintentional unalignment: likelihood displacement",
arXiv:2410.08847). Two signs, each of which is enough:

The policy has left the reference. `rewards/chosen` is beta x (log p - log p of the reference), so
the reference's log p is known as well. Summed over 32 points, which cancels the answers' lengths,
the chosen answers have lost half of their reference log-likelihood (in nats), or the rejected ones
four times theirs: moderate drift is normal. Published successful runs stay far below
(zephyr-7b-dpo: a sixth, and a third for the rejected), and so does TRL's own test series.

Validation gets worse. The held-out pairs are ranked worse than at their best by 0.05, and by six
times the noise of these evaluations, three times in a row (five where they are noisy), while the
training margin has grown.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from trainer_runtime.core.diagnosis.detectors.detector import PHASE, REWIND, Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.ledger import Value
from trainer_runtime.core.diagnosis.detectors.overfitting import noise_of
from trainer_runtime.core.diagnosis.detectors.window import mean_of
from trainer_runtime.core.diagnosis.remedies import value_at

ROW = ("rewards/chosen", "rewards/rejected", "logps/chosen", "logps/rejected")
VAL_ACCURACIES = ("val_rewards/accuracies", "val_accuracy")
_SIZE = 32
_CHOSEN_FELL, _REJECTED_FELL = 0.5, 4.0
_FAR = 3.0
_CHECKS = 3
_EVERY = 4
_BELOW, _DEVIATIONS = 0.05, 6.0
_IN_A_ROW, _IN_A_ROW_OF_NOISY = 3, 5
_USUAL_BETA, _WITH_A_USUAL_BETA = 0.1, ("dpo", "kto")  # where the configuration has none


def _newest() -> deque[float]:
    return deque(maxlen=_SIZE)


_CODES = {
    "over_optimization": Code(
        "The preference is over-optimised: the policy has moved far from its reference, or "
        "held-out pairs are ranked worse again.",
        (
            "margin {margin} with rewards/chosen {chosen} and logps/chosen {chosen_logps}",
            "chosen answers are less likely than under the reference by {chosen_fell} of their "
            "nats",
            "rejected answers by {rejected_fell} (beta {beta})",
            "held-out pairs ranked correctly {val_accuracy}, {best_val_accuracy} at step "
            "{best_step}",
            "training margin {margin}, {margin_at_best} then",
            "lr {lr}",
        ),
        (
            "Compare answers of earlier checkpoints: the best one is often far before the end.",
            "A larger beta, a lower learning rate or fewer epochs keep it closer to the reference.",
        ),
        remedies=("rewind_raise_beta", "rewind_halve_lr"),
        announces_rewind=True,
        closed_by=(REWIND, PHASE),
    ),
}


@dataclass(slots=True)
class OverOptimization(Detector):
    """`row` holds the newest step's values so far, the deques those of the newest steps."""

    codes = _CODES
    reads = (*ROW, *VAL_ACCURACIES)
    restarts_with_phase = True

    row: dict[str, float] = field(default_factory=dict)
    row_step: int = 0
    first_step: int | None = None
    points: int = 0
    checks: int = 0
    chosen: deque[float] = field(default_factory=_newest)
    rejected: deque[float] = field(default_factory=_newest)
    chosen_logps: deque[float] = field(default_factory=_newest)
    rejected_logps: deque[float] = field(default_factory=_newest)
    evaluations: deque[float] = field(default_factory=lambda: deque(maxlen=64))
    best: float = 0.0
    best_step: int = 0
    margin_at_best: float | None = None
    below: int = 0

    def point(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        """Take in one of the four values of a step's pairs, or an evaluation's accuracy."""
        if key in VAL_ACCURACIES:
            self._evaluation(context, step, value)
            return
        if step != self.row_step:
            self.row, self.row_step = {}, step
        self.row[key] = value
        if len(self.row) < len(ROW):
            return
        self.chosen.append(self.row["rewards/chosen"])
        self.rejected.append(self.row["rewards/rejected"])
        self.chosen_logps.append(self.row["logps/chosen"])
        self.rejected_logps.append(self.row["logps/rejected"])
        self.points += 1
        if self.points % _EVERY == 0 and len(self.chosen) == _SIZE:
            self._check(context, step)

    def _evaluation(self, context: DetectorContext, step: int, value: float) -> None:
        """Take in the share of held-out pairs that are ranked correctly."""
        noise = noise_of(self.evaluations)
        self.evaluations.append(value)
        if value > self.best:
            self.best, self.best_step, self.below = value, step, 0
            self.margin_at_best = self._margin()
            return
        if value > self.best - max(_BELOW, _DEVIATIONS * noise):
            self.below = 0
            return
        self.below += 1
        margin, before = self._margin(), self.margin_at_best
        grown = margin is not None and before is not None and margin > before > 0
        needed = _IN_A_ROW if _DEVIATIONS * noise < _BELOW else _IN_A_ROW_OF_NOISY
        if grown and self.below >= needed:
            self._report(
                context,
                self.best_step,
                {
                    "val_accuracy": value,
                    "best_val_accuracy": self.best,
                    "best_step": self.best_step,
                    "margin": margin,
                    "margin_at_best": before,
                },
            )

    def _check(self, context: DetectorContext, step: int) -> None:
        beta = _beta(context)
        if beta is None:
            return
        chosen = _fallen(self.chosen, self.chosen_logps, beta)
        rejected = _fallen(self.rejected, self.rejected_logps, beta)
        grows = mean_of(self.chosen) > mean_of(self.rejected)
        far = chosen > _CHOSEN_FELL or rejected > _REJECTED_FELL
        if not (grows and far):
            self.checks = 0
            self.first_step = None
            return
        self.checks += 1
        if self.first_step is None:
            self.first_step = step
        if self.checks < _CHECKS:
            return
        onset = self.first_step
        figures = {
            "chosen_fell": chosen if chosen > 0 else None,
            "rejected_fell": rejected,
            "beta": beta,
        }
        self._report(context, onset, {**figures, **self._levels(), "last_step": step})
        if chosen > _FAR * _CHOSEN_FELL:
            entry = context.ledger.get("over_optimization")
            if entry is not None:
                entry.grow("critical")

    def _levels(self) -> dict[str, Value]:
        return {
            "margin": self._margin(),
            "chosen": mean_of(self.chosen),
            "chosen_logps": mean_of(self.chosen_logps),
        }

    def _margin(self) -> float | None:
        return mean_of(self.chosen) - mean_of(self.rejected) if self.chosen else None

    def _report(self, context: DetectorContext, onset: int, values: dict[str, Any]) -> None:
        entry = context.ledger.get("over_optimization") or context.ledger.open(
            "over_optimization",
            onset,
            "warning",
            step=onset,
            confidence=0.8,
            remedies=_CODES["over_optimization"].remedies,
        )
        entry.values |= {**values, "lr": context.latest.get("lr")}


def _beta(context: DetectorContext) -> float | None:
    """The method's beta; None where it is unknown."""
    config = context.settings.config
    usual = _USUAL_BETA if config.get("method") in _WITH_A_USUAL_BETA else None
    beta = value_at(config, "method_args.beta") or usual
    if isinstance(beta, bool) or not isinstance(beta, (int, float)):
        return None
    return float(beta) if beta > 0 else None


def _fallen(rewards: deque[float], logps: deque[float], beta: float) -> float:
    """The answers' loss of log-likelihood as a share of that under the reference."""
    fallen = -sum(rewards) / beta
    reference = -sum(logps) - fallen
    return fallen / reference if reference > 0 else 0.0
