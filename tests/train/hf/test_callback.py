"""What Trainer's callback makes of its values and gradients."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch


@pytest.fixture(scope="module")
def callback() -> ModuleType:
    """Imported for these tests alone: it takes seconds, and every worker collects them."""
    from trainer_runtime.train.hf import callback

    return callback


def test_an_evaluation_is_recorded_under_our_names(callback: ModuleType) -> None:
    one = {"eval_loss": 2.0, "eval_runtime": 0.1, "eval_rewards/chosen": 0.5, "epoch": 1.0}
    assert callback.evaluation_values(one, {"main": 1.0}) == {
        "val_loss": 2.0,
        "val_rewards/chosen": 0.5,
    }
    several = {"eval_a_loss": 1.0, "eval_a_b_loss": 3.0, "eval_a_b_steps_per_second": 9.0}
    assert callback.evaluation_values(several, {"a": 1.0, "a_b": 3.0}) == {
        "val_loss/a": 1.0,
        "val_loss/a_b": 3.0,
        "val_loss": 2.5,
    }


def test_a_gradient_that_is_no_number_is_kept_from_the_optimizer(callback: ModuleType) -> None:
    model = torch.nn.Linear(3, 2)
    assert callback.gradients_are_finite(model)
    model.weight.grad, model.bias.grad = torch.ones(2, 3), torch.ones(2)
    assert callback.gradients_are_finite(model)
    model.weight.grad[1, 2] = torch.inf
    assert not callback.gradients_are_finite(model)
