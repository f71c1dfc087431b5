"""Chooses the metric of the best checkpoint."""

from __future__ import annotations

from trainmaster.plan.decisions.method import Method
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

_LOSS = ("val_loss", "The loss of held-out texts; less is better.", None)
# For pairs too: margins keep growing when answers no longer improve.
_LOSS_OF_ANSWERS = (
    "val_loss",
    "The loss of held-out answers; less is better. Margins are not suited: they keep growing "
    "when answers get worse.",
    "Gao et al. 2022 (arXiv 2210.10760) on over-optimization",
)
_BY_METHOD = {
    "dpo": _LOSS_OF_ANSWERS,
    "kto": _LOSS_OF_ANSWERS,
    "reward": (
        "val_accuracy",
        "The share of held-out pairs in the right order; more is better.",
        "Ouyang et al. 2022 (InstructGPT)",
    ),
    "grpo": (
        "val_reward",
        "The reward of answers to held-out prompts; more is better. The loss stays near zero in "
        "any case.",
        "Shao et al. 2024 (DeepSeekMath)",
    ),
}


def choose_best_metric(spec: TrainingSpec, method: Method, ledger: Ledger) -> str:
    """The metric; `core.protocol.best_metric` knows which direction of it is the better one.

    Every method evaluates: without rows to hold out its data is refused.
    """
    if spec.checkpoint.metric != "auto":
        return spec.checkpoint.metric
    early = spec.eval.early_stopping
    if early is not None and early.metric != "auto":
        ledger.decide("checkpoint.metric", early.metric, "What eval.early_stopping goes by.")
        return early.metric
    metric, reason, source = _BY_METHOD.get(method.name, _LOSS)
    ledger.decide("checkpoint.metric", metric, reason, source)
    return metric
