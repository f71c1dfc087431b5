"""The terms of the loss beside the cross-entropy: their gradients, and what is reported."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from trainer_runtime.core.config.optimization import OptimizerConfig
from trainer_runtime.train.attempt.objective import IGNORED, Objective

TARGETS = torch.tensor([1, 0, IGNORED, 4, 2])


def logits() -> Tensor:
    return (3 * torch.randn(5, 7, generator=torch.Generator().manual_seed(1))).requires_grad_()


def z_loss(of: Tensor) -> Tensor:
    log_z = of[TARGETS != IGNORED].exp().sum(dim=-1).log()
    return functional.cross_entropy(of, TARGETS) + 0.01 * (log_z**2).mean()


def focal(of: Tensor) -> Tensor:
    chosen = of.softmax(dim=-1)[TARGETS != IGNORED, TARGETS[TARGETS != IGNORED]]
    return -((1 - chosen) ** 2 * chosen.log()).mean()


@pytest.mark.parametrize(
    ("config", "published"),
    [
        (OptimizerConfig(z_loss=0.01), z_loss),
        (
            OptimizerConfig(label_smoothing=0.1),
            lambda of: functional.cross_entropy(of, TARGETS, label_smoothing=0.1),
        ),
        (OptimizerConfig(focal_gamma=2.0), focal),
    ],
)
def test_the_gradient_is_the_objectives_and_the_value_the_cross_entropys(
    config: OptimizerConfig, published: Callable[[Tensor], Tensor]
) -> None:
    objective, ours, theirs = Objective(config), logits(), logits()
    loss = objective(ours, TARGETS)
    loss.backward()
    expected = published(theirs)
    expected.backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    torch.testing.assert_close(loss.detach(), functional.cross_entropy(logits(), TARGETS).detach())
    taken = objective.take()
    torch.testing.assert_close(taken["objective"], expected.detach())
    assert ("z_loss" in taken) == bool(config.z_loss)


def test_sums_of_micro_batches_have_the_mean_over_all_tokens() -> None:
    objective, of = Objective(OptimizerConfig(z_loss=1.0)), logits()
    objective.summed(of[:1], TARGETS[:1])
    objective.summed(of[1:], TARGETS[1:])
    split = objective.take()
    objective(of, TARGETS)
    torch.testing.assert_close(split, objective.take())


def test_means_of_micro_batches_have_their_mean_as_the_loss_of_a_step_has() -> None:
    objective, of = Objective(OptimizerConfig(z_loss=1.0)), logits()
    losses = [objective(of[part], TARGETS[part]).detach() for part in (slice(0, 1), slice(1, 5))]
    taken = objective.take()
    torch.testing.assert_close(taken["objective"] - taken["z_loss"], sum(losses) / 2)


def test_an_evaluation_takes_the_cross_entropy_and_leaves_no_part() -> None:
    objective = Objective(OptimizerConfig(z_loss=1.0, label_smoothing=0.1))
    with torch.no_grad():
        loss = objective(logits(), TARGETS)
    torch.testing.assert_close(loss, functional.cross_entropy(logits(), TARGETS).detach())
    assert objective.take()["objective"].isnan()
    assert Objective(OptimizerConfig()).take() == {}
