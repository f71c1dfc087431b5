"""Which metrics say most, of which more is better, and of which less."""

from __future__ import annotations

# The most informative metrics: losses, and the margins and rewards of preference methods.
PRIMARY_KEYS = (
    "loss",
    "val_loss",
    "rewards/margins",
    "val_rewards/margins",
    "margin",
    "val_margin",
    "reward",
    "val_reward",
)
# Families of metrics of which more is better, and of which less is; others have no direction.
_OF_SPEED = ("tokens_per_s", "samples_per_s", "mfu", "tflops")
_OF_QUALITY = ("accuracy", "mean_token_accuracy", "margin", "reward", "rewards")
_HIGHER = frozenset((*_OF_SPEED, *_OF_QUALITY, *(f"val_{name}" for name in _OF_QUALITY)))
_LOWER = frozenset(["loss", "val_loss", "perplexity", "val_perplexity", "step_time_s"])


def is_of_speed(key: str) -> bool:
    """Whether a metric is of the machine, and means the same whatever is trained."""
    return key.partition("/")[0] in (*_OF_SPEED, "step_time_s")


def is_better_higher(key: str) -> bool | None:
    """Whether more of a metric is better; None for a metric without a direction."""
    family = key.partition("/")[0]
    if family in _HIGHER:
        return True
    return False if family in _LOWER else None
