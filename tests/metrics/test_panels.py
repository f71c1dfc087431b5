"""Which panels a plot and the board have, by what is trained."""

from __future__ import annotations

import pytest

from trainmaster.metrics.plots.panels import panels_among

_ALL = ["loss", "val_loss", "lr", "grad_norm", "tokens_per_s", "gpu_util"]
_REWARDS = ["rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"]


@pytest.mark.parametrize(
    ("reported", "first"),
    [
        ([], ["loss", "learning rate", "gradient norm"]),
        (["mfu"], ["loss", "mfu", "learning rate"]),
        (["mean_token_accuracy", "entropy"], ["loss", "token accuracy", "entropy"]),
        (_REWARDS, ["loss", "reward margin", "reward accuracy", "rewards"]),
        (["rewards/margins", "kl"], ["loss", "reward margin", "KL divergence"]),
        (["margin", "accuracy"], ["loss", "margin", "accuracy"]),
        (
            ["reward", "kl", "completions/mean_length"],
            ["reward", "KL divergence", "completion length, tokens", "loss"],
        ),
    ],
)
def test_panels_are_those_of_the_method_whose_metrics_are_reported(
    reported: list[str], first: list[str]
) -> None:
    titles = [panel.title for panel in panels_among([*_ALL, *reported], "step")]
    assert titles[: len(first)] == first
    assert titles[-3:] == ["gradient norm", "tokens / s", "GPU, %"]


def test_evaluations_stand_in_the_panel_of_their_metric() -> None:
    panels = panels_among(["loss", "val_loss", "reward", "val_reward"], "step")
    assert [panel.keys for panel in panels] == [("reward", "val_reward"), ("loss", "val_loss")]
    (alone,) = panels_among(["val_loss"], "step")
    assert (alone.keys, alone.title) == (("val_loss",), "val_loss")


def test_runs_that_are_compared_have_one_metric_in_each_panel() -> None:
    keys = [*_REWARDS, "val_rewards/chosen"]
    together = [panel.keys for panel in panels_among(keys, "step")]
    assert ("rewards/chosen", "val_rewards/chosen", "rewards/rejected") in together
    apart = [panel.keys for panel in panels_among(keys, "step", compared=True)]
    assert ("rewards/chosen", "val_rewards/chosen") in apart and ("rewards/rejected",) in apart
