"""Whether more or less of the metric by which the best checkpoint is chosen is better."""

from __future__ import annotations

_MORE_IS_BETTER = ("accuracy", "accuracies", "margin", "margins", "reward")
_LESS_IS_BETTER = ("val_loss", "val_perplexity")


def badness(metric: str, value: float) -> float:
    """What is least for the best: accuracies, margins and rewards count the other way round."""
    return -value if metric.endswith(_MORE_IS_BETTER) else value


def is_rated(metric: str) -> bool:
    """Whether it comes of evaluations and has a better and a worse."""
    return metric.startswith(_LESS_IS_BETTER) or (
        metric.startswith("val_") and metric.endswith(_MORE_IS_BETTER)
    )
