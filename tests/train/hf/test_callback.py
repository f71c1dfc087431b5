"""What Trainer's callback makes of its values and gradients."""

from __future__ import annotations

import torch

from trainer_runtime.train.hf.callback import evaluation_values, gradients_are_finite


def test_an_evaluation_is_recorded_under_our_names() -> None:
    one = {"eval_loss": 2.0, "eval_runtime": 0.1, "eval_rewards/chosen": 0.5, "epoch": 1.0}
    assert evaluation_values(one, {"main": 1.0}) == {"val_loss": 2.0, "val_rewards/chosen": 0.5}
    several = {"eval_a_loss": 1.0, "eval_a_b_loss": 3.0, "eval_a_b_steps_per_second": 9.0}
    assert evaluation_values(several, {"a": 1.0, "a_b": 3.0}) == {
        "val_loss/a": 1.0,
        "val_loss/a_b": 3.0,
        "val_loss": 2.5,
    }


def test_a_gradient_that_is_no_number_is_kept_from_the_optimizer() -> None:
    model = torch.nn.Linear(3, 2)
    assert gradients_are_finite(model)
    model.weight.grad, model.bias.grad = torch.ones(2, 3), torch.ones(2)
    assert gradients_are_finite(model)
    model.weight.grad[1, 2] = torch.inf
    assert not gradients_are_finite(model)
