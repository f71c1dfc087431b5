"""Whether more or less of the metric by which the best checkpoint is chosen is better."""

from __future__ import annotations

_MORE_IS_BETTER = ("accuracy", "accuracies", "margin", "margins", "reward")


def badness(metric: str, value: float) -> float:
    """What is least for the best: accuracies, margins and rewards count the other way round."""
    return -value if metric.endswith(_MORE_IS_BETTER) else value
