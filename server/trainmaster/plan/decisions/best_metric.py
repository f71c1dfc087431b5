"""By which metric the best checkpoint is chosen."""

from __future__ import annotations

from trainmaster.plan.decisions.method import Method
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

_LOSS = ("val_loss", "The loss of texts that it has not trained on; less is better.", None)
# Of pairs too: margins grow on when answers no longer get better.
_LOSS_OF_ANSWERS = (
    "val_loss",
    "The loss of held-out answers; less is better. Margins are no measure: they grow on when "
    "answers get worse.",
    "Gao et al. 2022 (arXiv 2210.10760) on over-optimization",
)
_BY_METHOD = {
    "dpo": _LOSS_OF_ANSWERS,
    "kto": _LOSS_OF_ANSWERS,
    "reward": (
        "val_accuracy",
        "How many held-out pairs it orders rightly; more is better.",
        "Ouyang et al. 2022 (InstructGPT)",
    ),
    "grpo": (
        "val_reward",
        "What its answers to held-out prompts earn; more is better. Its loss stays near zero "
        "whatever is learnt.",
        "Shao et al. 2024 (DeepSeekMath)",
    ),
}


def choose_best_metric(spec: TrainingSpec, method: Method, ledger: Ledger) -> str:
    """The metric; `core.protocol.best_metric` knows which direction of it is the better one.

    Every method evaluates: without rows to hold out its data is refused.
    """
    if spec.checkpoint.metric != "auto":
        return spec.checkpoint.metric
    metric, reason, source = _BY_METHOD.get(method.name, _LOSS)
    ledger.decide("checkpoint.metric", metric, reason, source)
    return metric
